"""`python -m kruise_probe` is `kruise-probe`."""

from kruise_probe.cli.main import main

if __name__ == "__main__":
    main()
