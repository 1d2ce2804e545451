"""Sites: ComBat in the folds, a comparison of ways to handle sites, and the section of the page about them."""
