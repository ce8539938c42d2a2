"""Mathematics and messages: what an algorithm is made of, and what crosses the network."""
