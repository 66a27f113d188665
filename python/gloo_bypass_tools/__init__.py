"""What the launchers of scripts/ call, a package for each; common/ is below all of them."""
