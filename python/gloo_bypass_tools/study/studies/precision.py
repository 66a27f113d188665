"""Training in single and in double precision."""

from gloo_bypass_tools.study.training import TrainingStudy, TrainingVariant

STUDIES = (TrainingStudy(
    name="precision", order=50, title="FP32 and FP64", about="Two ranks; gradients of twice the bytes.",
    variants=(TrainingVariant("fp32"), TrainingVariant("fp64", bits=64))),)
