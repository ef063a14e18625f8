"""Collection: samples of this process (sampler, sources, traces), of other exporters (remote), of recordings."""
