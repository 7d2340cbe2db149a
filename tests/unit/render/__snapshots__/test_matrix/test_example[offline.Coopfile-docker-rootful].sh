error: base.image: oci:images/base is in a file, which coop itself checks and loads
help: coop run does that; or push the image to a registry and name it there
