"""How far labels, raters, rankings and scores agree; arrays in, numbers out.

| question | functions |
|---|---|
| is a labelling right? | `accuracy`, `conditioned_accuracies`, `balanced_accuracy`, `joint_table` |
| how informative is it, in bits? | `entropy`, `conditional_entropy`, `mutual_information` |
| all of that at once | `label_agreement` |
| do two raters agree beyond chance? | `cohen_kappa`, `cohen_kappa_test` |
| do many raters? | `fleiss_kappa`, `fleiss_kappa_test`, `krippendorff_alpha`, `majority_labels` |
| does confidence predict accuracy? | `confidence_weighted_score`, `confidence_weights` |
| do labels and confidence agree? | `is_sound`, `is_self_contradictory` |
| are probabilities right? | `log_loss`, `brier_score`, `auc`, `calibration_error` |
| is a ranking right? | `average_precision`, `top_overlap` |
| are scores in the same order? | `kendall_tau_b`, `spearman`, `pearson`, `pairwise_accuracy` |
| is it significant? | `correlation_test`, `correlation_matrix`, `holm`, `benjamini_hochberg` |
| how uncertain is a measure? | `bootstrap_interval` |
| what is the mean label, with a judge on all items? | `judged_mean`, `judged_means` |
| which items should people label? | `labelling_probabilities` |
| are levels by cut scores right, and repeatable? | `rudner_classification`, `livingston_lewis` |
"""

from irtcat._common.lazy import public_names
from irtcat.agreement.classifications import (
    BetaBinomial,
    Classification,
    livingston_lewis,
    observed_classification,
    rudner_classification,
)
from irtcat.agreement.confidences import (
    auc,
    average_precision,
    brier_score,
    calibration_error,
    calibration_limit,
    confidence_weighted_score,
    confidence_weights,
    is_self_contradictory,
    is_sound,
    log_loss,
    reliability_curve,
)
from irtcat.agreement.corrections import benjamini_hochberg, holm
from irtcat.agreement.correlations import (
    Correlation,
    CorrelationMatrix,
    correlation_matrix,
    correlation_test,
    kendall_tau_b,
    mean_absolute_error,
    pairwise_accuracy,
    pearson,
    root_mean_squared_error,
    spearman,
    top_overlap,
)
from irtcat.agreement.labellings import (
    accuracy,
    balanced_accuracy,
    conditional_entropies,
    conditional_entropy,
    conditioned_accuracies,
    entropy,
    joint_table,
    label_agreement,
    mutual_information,
)
from irtcat.agreement.prediction_powered import (
    JudgedMean,
    judged_mean,
    judged_means,
    labelling_probabilities,
)
from irtcat.agreement.raters import (
    Kappa,
    cohen_kappa,
    cohen_kappa_test,
    fleiss_kappa,
    fleiss_kappa_test,
    krippendorff_alpha,
    majority_labels,
    majority_share,
)
from irtcat.agreement.resampling import BootstrapInterval, bootstrap_interval

__all__ = [
    "BetaBinomial",
    "BootstrapInterval",
    "Classification",
    "Correlation",
    "CorrelationMatrix",
    "JudgedMean",
    "Kappa",
    "accuracy",
    "auc",
    "average_precision",
    "balanced_accuracy",
    "benjamini_hochberg",
    "bootstrap_interval",
    "brier_score",
    "calibration_error",
    "calibration_limit",
    "cohen_kappa",
    "cohen_kappa_test",
    "conditional_entropies",
    "conditional_entropy",
    "conditioned_accuracies",
    "confidence_weighted_score",
    "confidence_weights",
    "correlation_matrix",
    "correlation_test",
    "entropy",
    "fleiss_kappa",
    "fleiss_kappa_test",
    "holm",
    "is_self_contradictory",
    "is_sound",
    "joint_table",
    "judged_mean",
    "judged_means",
    "kendall_tau_b",
    "krippendorff_alpha",
    "label_agreement",
    "labelling_probabilities",
    "livingston_lewis",
    "log_loss",
    "majority_labels",
    "majority_share",
    "mean_absolute_error",
    "mutual_information",
    "observed_classification",
    "pairwise_accuracy",
    "pearson",
    "reliability_curve",
    "root_mean_squared_error",
    "rudner_classification",
    "spearman",
    "top_overlap",
]

__dir__ = public_names(__name__)
