"""The reader of Apple's argv refuses every wrong form, so that what passes it is right."""

from __future__ import annotations

import pytest

from tests.unit.render.apple.checker import RefusedError, World, read, size, split
from tests.unit.render.apple.machine import Seen, is_mount_point, mounted, seen

WORLD = World(
    directories=("/h", "/h/w", "/h/w/.git", "/h/w/secrets", "/h/a=b", "/h/c,d"),
    files=("/h/.gitconfig", "/h/w/Coopfile", "/h/w/.env"),
)

TAKEN = {
    "least": "run IMAGE",
    "command": "run alpine ls -l --color",
    "joined": "run --entrypoint=-x --name=ab alpine -c true",
    "short": "run -i -t -c 2 -m 2G -v /h/w:/w -e A=b -w /w alpine",
    "inherits": "run -e A alpine",
    "empty-value": "run -e A= alpine",
    "memory": "run -m 209715200 alpine",
    "fraction": "run -m 0.5g alpine",
    "named-volume": "run -v cache:/c alpine",
    "single-file": "run -v /h/.gitconfig:/root/.gitconfig:ro alpine",
    "mount": "run --mount type=bind,source=/h/c:d,target=/w,readonly alpine",
    "tmpfs": "run --mount type=tmpfs,target=/tmp,size=64M,mode=1777 alpine",
    "publish": "run -p 8080:80 -p [::1]:3000:3000 -p 127.0.0.1:53:53/udp alpine",
    "limits": "run --ulimit nproc=5 --ulimit nofile=10:20 --ulimit core=unlimited alpine",
    "network": "run --network default,mtu=1500 alpine",
    "exec": "exec -i -t --user 0:0 -w /w ab sh -c true",
    "start": "start --attach --interactive ab",
    "stop": "stop --time 5 ab cd",
    "delete": "delete --force ab",
    "build": "build --tag localhost/a:b --file - --progress plain /h",
    "export": "export --output /h/rootfs.tar ab",
    "inspect": "image inspect alpine",
}

REFUSED = {
    "nothing": "",
    "verb": "commit ab image",
    "images": "images",
    "image-verb": "image exists a",
    "unknown-flag": "run --security-opt no-new-privileges alpine",
    "pids-limit": "run --pids-limit 5 alpine",
    "memory-swap": "run --memory-swap 1g alpine",
    "hostname": "run --hostname coop alpine",
    "userns": "run --userns host alpine",
    "quiet": "run --quiet alpine",
    "pull": "run --pull never alpine",
    "one-dash": "run -name ab alpine",
    "two-dashes": "run --e A=b alpine",
    "flag-with-value": "run --init=true alpine",
    "create-progress": "create --progress none alpine",
    "start-progress": "start --progress none ab",
    "exec-ulimit-like-run": "exec --read-only ab true",
    "no-image": "run --rm",
    "option-for-image": "run --name",
    "no-value": "run --name --rm alpine",
    "dash-value": "run --entrypoint -x alpine",
    "dashes-before-image": "run -- alpine",
    "dashes-after-image": "run alpine -- true",
    "dashes-after-id": "exec ab -- true",
    "exec-nothing": "exec ab",
    "cpus": "run --cpus 1.5 alpine",
    "no-cpus": "run --cpus 0 alpine",
    "memory-unit": "run --memory 2Gi alpine",
    "memory-word": "run --memory lots alpine",
    "little-memory": "run --memory 199M alpine",
    "memory-without-unit": "run --memory 512 alpine",
    "label": "run --label a=b=c alpine",
    "empty-variable": "run --env =b alpine",
    "name-short": "run --name a alpine",
    "name-long": "run --name " + "a" * 64 + " alpine",
    "name-slash": "run --name a/b alpine",
    "name-leading-dot": "run --name .ab alpine",
    "bare-volume-name": "run -v my:host/dir:x:/w alpine",
    "relative-volume": "run -v host/dir:/w alpine",
    "missing-volume": "run -v /nowhere:/w alpine",
    "colon-in-volume": "run -v /h/w:/a:b:ro alpine",
    "volume-name": "run -v -x:/w alpine",
    "mount-key": "run --mount type=bind,source=/h/w,target=/w,bind-propagation=rprivate alpine",
    "mount-type": "run --mount type=overlay,source=/h/w,target=/w alpine",
    "mount-file": "run --mount type=bind,source=/h/.gitconfig,target=/g alpine",
    "mount-missing": "run --mount type=bind,source=/nowhere,target=/w alpine",
    "mount-relative": "run --mount type=bind,source=h/w,target=/w alpine",
    "mount-equals": "run --mount type=bind,source=/h/a=b,target=/w alpine",
    "mount-comma": "run --mount type=bind,source=/h/c,d,target=/w alpine",
    "mount-no-target": "run --mount type=bind,source=/h/w alpine",
    "mount-bind-size": "run --mount type=bind,source=/h/w,target=/w,size=1M alpine",
    "tmpfs-source": "run --mount type=tmpfs,source=/h/w,target=/tmp alpine",
    "tmpfs-mode": "run --mount type=tmpfs,target=/tmp,mode=rwx alpine",
    "tmpfs-docker-options": "run --mount type=tmpfs,target=/tmp,tmpfs-size=1 alpine",
    "ulimit-type": "run --ulimit pids=5 alpine",
    "ulimit-value": "run --ulimit nproc=many alpine",
    "ulimit-order": "run --ulimit nproc=5:4 alpine",
    "ulimit-twice": "run --ulimit nproc=5 --ulimit nproc=6 alpine",
    "network-none-and-more": "run --network none --network default alpine",
    "network-property": "run --network default,ip=1 alpine",
    "no-dns-and-dns": "run --no-dns --dns 1.1.1.1 alpine",
    "publish-port": "run -p 3000 alpine",
    "publish-one": "run -p 1:80 alpine",
    "publish-address": "run -p localhost:80:80 alpine",
    "publish-twice": "run -p 127.0.0.1:80:80 -p 127.0.0.2:80:81 alpine",
    "capability": "run --cap-drop cap-all alpine",
    "masked-relative": "run --masked-path etc alpine",
    "delete-all": "delete --force --all ab",
    "delete-nothing": "delete --force",
    "build-nothing": "build --tag a",
    "build-network": "build --tag a --network none /h",
    "build-progress": "build --tag a --progress none /h",
    "stop-time": "stop --time soon ab",
}


@pytest.mark.parametrize("line", TAKEN.values(), ids=TAKEN)
def test_what_is_documented_is_taken(line: str) -> None:
    """A documented form is read."""
    world = World((*WORLD.directories, "/h/c:d"), WORLD.files)
    words = ["alpine" if word == "IMAGE" else word for word in line.split()]
    assert read(["container", *words], world).subject


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_a_wrong_form_is_refused(line: str) -> None:
    """What Apple's command line would refuse, or would mean another thing by, is refused."""
    with pytest.raises(RefusedError):
        read(["container", *line.split()], WORLD)


@pytest.mark.parametrize("argument", ["a\0b", "\udcff"])
def test_what_no_argument_can_be_is_refused(argument: str) -> None:
    """An argument is text without zero bytes."""
    with pytest.raises(RefusedError):
        read(["container", "run", "alpine", argument])


def test_what_comes_after_the_image_is_the_commands() -> None:
    """Options after the image are not the command line's, even those it knows."""
    call = read(["container", "run", "alpine", "ls", "--rm", "-c", "2"])
    assert call.command == ("ls", "--rm", "-c", "2")
    assert call.flags == set()


def test_the_images_entry_point_comes_first() -> None:
    """Without --entrypoint, and with an empty one, the image's comes before the command."""
    for words in (["alpine", "true"], ["--entrypoint=", "alpine", "true"]):
        assert read(["container", "run", *words]).process(["/start"]) == ("/start", "true")
    assert read(["container", "run", "--entrypoint=sh", "alpine", "-c"]).process(["/start"]) == ("sh", "-c")


def test_leaving_the_network_out_is_having_one() -> None:
    """No --network is the default network."""
    assert read(["container", "run", "alpine"]).network == "default"
    assert read(["container", "run", "--network", "none", "alpine"]).network == "none"


def test_tmpfs_takes_the_whole_value_for_a_path() -> None:
    """Options behind a colon are part of the directory's name."""
    call = read(["container", "run", "--tmpfs", "/tmp:size=64m", "alpine"])
    assert [show.target for show in mounted(call, WORLD)] == ["/tmp:size=64m"]


def test_a_separator_that_combines_separates_nothing() -> None:
    """Characters are grapheme clusters: a mark after a separator, or a prefix before it, hides it."""
    assert split("a:b:c", ":") == ["a", "b", "c"]
    assert split("A=\u0301x", "=", 1, empty=True) == ["A=\u0301x"]
    assert split("/a\u0600:/w", ":") == ["/a\u0600:/w"]
    assert split("é:ü", ":") == ["é", "ü"]


@pytest.mark.parametrize(
    ("text", "value"), [("512", 512), ("1k", 1024), ("1.5M", 1572864), ("2GiB", 2**31), ("1tb", 2**40)]
)
def test_sizes(text: str, value: int) -> None:
    """Sizes are binary, and a bare number is bytes."""
    assert size(text) == value


def _call(*options: str) -> tuple[list[str], World]:
    return ["container", "run", "--read-only", *options, "alpine"], WORLD


def test_mounts_are_made_outermost_first() -> None:
    """The order of options does not count: a mount inside another is made after it."""
    argv, world = _call("-v", "/h/w/secrets:/w/x:ro", "-v", "/h/w:/w")
    call = read(argv, world)
    assert [show.target for show in mounted(call, world)] == ["/w", "/w/x"]
    assert seen(call, world, "/w/x/f") == Seen("/h/w/secrets/f", False)
    assert seen(call, world, "/w/y") == Seen("/h/w/y", True)
    assert seen(call, world, "/etc") == Seen(None, False)


def test_a_single_file_takes_its_directory_away() -> None:
    """The directory of a single file is not mounted, though another option says so."""
    argv, world = _call("-v", "/h/w:/w", "-v", "/h/w/Coopfile:/w/Coopfile:ro")
    assert seen(read(argv, world), world, "/w/f") == Seen(None, False)


def test_a_directory_is_shared_in_one_way() -> None:
    """The last of two mounts of a directory decides whether it can be written."""
    argv, world = _call("-v", "/h/w:/w", "-v", "/h/w:/v:ro")
    assert seen(read(argv, world), world, "/w/f") == Seen("/h/w/f", False)


def test_masks_and_read_only_paths_come_last() -> None:
    """What is masked is not there, what is read-only is; what is missing is not guarded."""
    argv, world = _call(
        *("-v", "/h/w:/w", "--masked-path", "/w/.env", "--read-only-path", "/w/Coopfile"),
        *("--masked-path", "/w/none"),
    )
    call = read(argv, world)
    assert seen(call, world, "/w/.env") == Seen(None, False)
    assert seen(call, world, "/w/Coopfile") == Seen("/h/w/Coopfile", False)
    assert seen(call, world, "/w/none") == Seen("/h/w/none", True)
    assert is_mount_point(call, world, "/w/Coopfile")
    assert not is_mount_point(call, world, "/w/.git")


def test_a_writable_mount_below_a_read_only_path_stays_writable() -> None:
    """Making a path read-only does not reach the mounts below it."""
    argv, world = _call("-v", "/h:/w", "-v", "/h/w/.git:/w/w/.git", "--read-only-path", "/w/w")
    call = read(argv, world)
    assert not seen(call, world, "/w/w/f").write
    assert seen(call, world, "/w/w/.git/f").write
