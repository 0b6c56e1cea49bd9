"""Alerts, dashboard and ServiceMonitor as values; `hack/gen_config.py` writes them to `config/`. No command prints them."""
