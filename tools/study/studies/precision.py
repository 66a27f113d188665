"""Training in single and in double precision, as published; and in sixteen bits, of which there are two kinds."""

from gloo_bypass_tools.study.definition import Point, Study

STUDIES = (
    Study(
        name="precision",
        order=50,
        title="FP32 and FP64, BF16 and FP16",
        about="""Two ranks; gradients of twice the bytes, and of half. Nothing was published about BF16 and FP16.""",
        variants=tuple(Point(name, precision=name) for name in ("fp32", "fp64", "bf16", "fp16")),
    ),
)
