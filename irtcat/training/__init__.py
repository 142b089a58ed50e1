"""IRT for model training: crowds, filters, curricula, training dynamics, wrong labels, prompts.

    from irtcat import fit
    from irtcat.training import crowd, filters
    members = crowd.build(classifier, (X, y), 1000, size=(0.05, 0.8), label_noise=(0.0, 0.3))
    bank = fit(members.responses(), "rasch").bank
    easy = filters.apply(bank, "ub", keep=0.25)
    classifier.fit(X[easy.indices], y[easy.indices])

Labels and out-of-sample probabilities, as cleanlab takes them, give the examples whose labels are
most suspect:

    from irtcat.training import audit
    audit(labels, pred_probs).first(10)

How the answers of trained models depend on the size of the training set and on difficulty:

    from irtcat.training import learning_regression
    learning_regression(bank, answers, "size", systems="network", categories="topic").table

`irtcat.training.drivers.torch`, `irtcat.training.drivers.huggingface` and
`irtcat.training.drivers.verl` plug filters and curricula into trainers; they need these libraries,
and are imported by name.

Modules load on first use: `crowd`, `filters`, `curriculum`, `dynamics`, `online`, and `labels`,
which is `irtcat.diagnose.labels`.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.diagnose import labels as labels
    from irtcat.training import crowd as crowd
    from irtcat.training import curriculum as curriculum
    from irtcat.training import dynamics as dynamics
    from irtcat.training import filters as filters
    from irtcat.training import online as online
    from irtcat.training.auditing import audit as audit
    from irtcat.training.learning import LearningRegression as LearningRegression
    from irtcat.training.learning import learning_regression as learning_regression
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.diagnose": "labels",
            "irtcat.training": "crowd curriculum dynamics filters online",
            "irtcat.training.auditing": "audit",
            "irtcat.training.learning": "LearningRegression learning_regression",
        },
    )
