"""How fast is it beside the others? The same work, on the same server, in the same run."""
