"""Can one caller take a server down? Attacks on a real server, beside a steady stream of good posts."""
