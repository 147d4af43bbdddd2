"""All assets of the code location, as a list: for who asks for their contracts before they may be loaded."""

from de_assets import automation, bronze, gold, serving, silver, staging
from de_assets.sources.systems import systems

assets = [*systems, *bronze.assets, *silver.assets, *gold.assets, *serving.assets, *staging.assets, *automation.assets]
