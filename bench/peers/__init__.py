"""One driver a peer, and beside it the versions that it is measured in."""
