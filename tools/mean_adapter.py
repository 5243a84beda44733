"""Average the weights of adapters of one training, such as those after two and after four epochs.

python tools/mean_adapter.py models/two-epochs models/four-epochs --out models/mpnet

The second training starts from the first (`--set start=`), so their tensors can be averaged one by one.
`training.json` is a copy from the last folder, plus `mean_of`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from erda.encoders.adapter import TrainedWeights
from erda.errors import ErdaError


def main() -> None:
    """Read the command line and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of `erda corpus train`")
    parser.add_argument("--encoder", default="mpnet")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = [TrainedWeights.load(folder, base=options.encoder) for folder in options.folders]
    summed = {name: sum(one.tensors[name].float() for one in found) for name in found[0].tensors}
    mean = {name: (total / len(found)).to(found[0].tensors[name].dtype) for name, total in summed.items()}
    replace(found[-1], tensors=mean).save(options.out)
    training = json.loads((options.folders[-1] / "training.json").read_text(encoding="utf-8"))
    training["mean_of"] = [str(folder) for folder in options.folders]
    (options.out / "training.json").write_text(json.dumps(training, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (ErdaError, OSError) as fault:
        raise SystemExit(str(fault)) from None
