"""One module for each framework, with a class `Runner` that has the methods of `benchmarks.contract.case.Peer`."""
