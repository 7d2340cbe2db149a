# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/debian:bookworm-slim
FROM docker.io/library/debian:bookworm-slim
USER 0:0
WORKDIR /

# packages.apt
RUN ["/bin/sh", "-c", "--", "command -v apt-get >/dev/null || { echo 'coop: packages.apt: apt-get is not in this image: use an image of Debian or Ubuntu, or another manager' >&2; exit 127; }; apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git && apt-get clean && rm -rf /var/lib/apt/lists/*"]

# setup.run
RUN ["/bin/sh", "-c", "--", "printf %s 'a\"b' \"c'd\" >/single-quotes"]
RUN ["/bin/sh", "-c", "--", "printf %s 'a\\b\\\\c\\\\\\d\\n\\t' >/backslashes"]
RUN ["/bin/sh", "-c", "--", "printf %s x >/trailing-backslash; : \\"]
RUN ["/bin/sh", "-c", "--", ": >/trailing-backslashes; : \\\\"]
RUN ["/bin/sh", "-c", "--", "printf %s x >/trailing-blank \\ \t "]
RUN ["/bin/sh", "-c", "--", "printf %s a\\\nb >/shell-continues"]
RUN ["/bin/sh", "-c", "--", "printf '[%s]' 'a\n\n  b\t\n' >/newlines\n"]
RUN ["/bin/sh", "-c", "--", "\n\nprintf x >/first-newline"]
RUN ["/bin/sh", "-c", "--", "A=1; printf %s \"$A${A}$(printf 2)`printf 3`\" >/shell-expands"]
RUN ["/bin/sh", "-c", "--", "printf %s '$A ${PATH} $(id) `id` \\$A $$' >/not-expanded"]
RUN ["/bin/sh", "-c", "--", "printf %s \"${NOT_SET:-a b}\" >/default-value"]
RUN ["/bin/sh", "-c", "--", "cat >/here-document <\u003cEOF\na $((1+1))\nRUN false\nEOF"]
RUN ["/bin/sh", "-c", "--", "cat >/quoted-here-document <\u003c-'E O'\n\t$A\n\tE O\n"]
RUN ["/bin/sh", "-c", "--", "printf %s $((1<\u003c3)) '<\u003cEOF' '<\u003c<\u003c' >/shift"]
RUN ["/bin/sh", "-c", "--", "# a comment\nprintf %s '#' >/comment # RUN false"]
RUN ["/bin/sh", "-c", "--", "printf %s 'x\nRUN false\nFROM scratch\n' >/instruction"]
RUN ["/bin/sh", "-c", "--", "# syntax=example.invalid/x\n# escape=`\nprintf x >/directive"]
RUN ["/bin/sh", "-c", "--", "printf %s '\"] , [\"x\", \"\\u0041\\\"]' >/json"]
RUN ["/bin/sh", "-c", "--", "printf %s '{{ base }}{% raw %}{# x #}' >/template"]
RUN ["/bin/sh", "-c", "--", "set -f; printf %s * ? [a] >/globs"]
RUN ["/bin/sh", "-c", "--", "printf %s '<a href=\"x\">&amp;</a>' >/html"]
RUN ["/bin/sh", "-c", "--", "printf %s '%s%%d %PATH% !x!' >/percent"]
RUN ["/bin/sh", "-c", "--", "printf %s '--mount=type=bind --network=host' >/flags"]
RUN ["/bin/sh", "-c", "--", "printf %s 'gr\u00fc\u00dfe \u4e16\u754c \ud83d\ude00 e\u0301 \u00a0' >/non-ascii"]
RUN ["/bin/sh", "-c", "--", "printf %s 'a\u2028b\u2029c' >/line-separators"]
RUN ["/bin/sh", "-c", "--", " \t printf x >/leading-blanks"]
RUN ["/bin/sh", "-c", "--", "-c 2>/dev/null; printf x >/leading-dash"]
RUN ["/bin/sh", "-c", "--", "+x 2>/dev/null; printf x >/leading-plus"]
RUN ["/bin/sh", "-c", "--", "# ' \" \\ $A ${B} `c` \\\\ <\u003cEOF # \\n \\u0041 ] [ , \u00e9\n\t # \\\ncat /proc/$$/cmdline >/argument\n:"]

# agent.install
RUN ["/bin/sh", "-c", "--", "npm install"]
