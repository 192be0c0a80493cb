"""At home in a web framework: small bridges, each imported only by who has that framework."""
