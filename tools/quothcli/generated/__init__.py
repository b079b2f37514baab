"""Files for other programs, made from tables: Prometheus' scrapes and alerts, a dashboard of Grafana."""
