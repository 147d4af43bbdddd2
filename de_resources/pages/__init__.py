"""What all pages of the platform share: colours in light and dark, text that is no markup, plots, how a page is published."""
