"""The store's verbs, written once over `Tx`."""
