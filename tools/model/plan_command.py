"""scripts/model plan: the bandwidth between sites that training a large model over them needs."""

from dataclasses import asdict

from gloo_bypass_tools.common.argument_types import number_in
from gloo_bypass_tools.common.options import add_number
from gloo_bypass_tools.model import output, planner, quantities

CALIBRATED = "--calibration-tokens: k = B_crit / sqrt(tokens)"
# Flag, field of planner.Inputs, type, least, most, unit and meaning.
FLAGS = (
    ("--power-gw", "power_w", float, 1e-6, 1e6, 1e9, "GW of all sites together"),
    ("--pod-power-kw", "pod_power_w", float, 0.001, 1e9, 1e3, "kW of a pod"),
    ("--pod-pflops", "pod_flops", float, 1e-6, 1e12, 1e15, "PFLOPS of a pod"),
    ("--sites", "sites", int, 2, 100000, 1, "sites on the ring"),
    ("--ring-km", "ring_km", float, 0, 1e9, 1, "km once round the ring"),
    ("--us-per-km", "us_per_km", float, 0, 1e6, 1, "microseconds a km of fibre"),
    ("--hops", "hops", int, 0, 10**9, 1, "switches on the way round (default: as many as sites)"),
    ("--hop-us", "hop_us", float, 0, 1e9, 1, "microseconds a hop"),
    ("--parameters", "parameters", float, 1, 1e20, 1, "parameters of the model"),
    ("--tokens", "tokens", float, 1, 1e24, 1, "tokens trained on"),
    ("--bits", "bits", int, 1, 128, 1, "bits of a gradient"),
    ("--days", "days", float, 1e-6, 1e6, 1, "days that training takes"),
    ("--critical-batch-tokens", "critical_tokens", float, 1, 1e24, 1, f"B_crit in tokens at {CALIBRATED}"),
    ("--calibration-tokens", "calibration_tokens", float, 1, 1e24, 1, "tokens at which B_crit is known"),
    ("--alpha-net", "alpha_net", float, 1e-9, 1, 1, "share of T_batch that synchronisation may take"),
    ("--fabric-pods", "fabric_pods", int, 1, 10**9, 1, "pods of a site, for its own fabric"),
    ("--pod-trays", "pod_trays", int, 1, 10**6, 1, "trays of a pod"),
    ("--tray-ports", "tray_ports", int, 1, 10**6, 1, "ports of a tray"),
    ("--port-gbit", "port_bits_s", float, 1e-6, 1e9, 1e9, "Gbit/s of a port"),
)
HELP = "bandwidth between data centres"
DESCRIPTION = """The bandwidth that synchronous training over several sites needs. Defaults are the published \
reference case.

  pods = power / power of a pod                  FLOPS = pods x FLOPS of a pod
  S = parameters x bits                          B_crit = k sqrt(tokens)
  updates = tokens / B_crit                      T_batch = days / updates
  T_sync <= alpha_net T_batch                    T_sync = T_prop + T_hop + S / BW
  T_prop = length x us/km                        T_hop = hops x hop delay
  BW_min = S / (alpha_net T_batch - T_prop - T_hop)

This BW_min counts one time round the ring (--topology once-round, as the source does). A ring all-reduce over N sites \
takes more rounds;
with T_1 = (T_prop + T_hop) / N and BW in each direction of each edge, T_sync is
  one-way        2(N-1) T_1 + 2(N-1)/N S/BW      bidirectional  (N-1)(T_1 + S/(N BW))
  site fabric    pods x trays x ports x Gbit/s"""
# The last formulas, by topology.
LAST_FORMULAS = {
    "once-round": ("T_sync - T_prop - T_hop", "S / (T_sync - T_prop - T_hop)"),
    "one-way": ("T_sync - 2(N-1) T_1", "2(N-1)/N S / (T_sync - 2(N-1) T_1)"),
    "bidirectional": ("T_sync - (N-1) T_1", "(N-1)/N S / (T_sync - (N-1) T_1)"),
}
# The table's lines: field of planner.Plan, its name, its formula (None: by topology), unit.
ROWS = (
    ("pods", "pods", "power / pod power", None),
    ("pods_a_site", "pods a site", "pods / sites", None),
    ("flops", "FLOPS", "pods x FLOPS of a pod", None),
    ("gradient_bits", "gradients, S", "parameters x bits", "bit"),
    ("critical_tokens", "critical batch, B_crit, tokens", "k sqrt(tokens)", None),
    ("updates", "updates", "tokens / B_crit", None),
    ("batch_s", "T_batch", "days / updates", "s"),
    ("sync_s", "T_sync at most", "alpha_net T_batch", "s"),
    ("propagation_s", "T_prop", "length x us/km", "s"),
    ("hop_s", "T_hop", "hops x hop delay", "s"),
    ("serialisation_s", "left for bytes", None, "s"),
    ("bandwidth", "BW_min", None, "bit/s"),
    ("fabric", "a site's own fabric", "pods x trays x ports x rate", "bit/s"),
)


def add_options(parser):
    for flag, field, kind, low, high, unit, meaning in FLAGS:
        default = getattr(planner.Inputs(), field) / unit if kind is float else getattr(planner.Inputs(), field)
        parser.add_argument(
            flag,
            dest=field,
            type=number_in(kind, low, high),
            metavar="X" if kind is float else "N",
            help=meaning if "default" in meaning else f"{meaning} (default {default:g})",
        )
    itself = "k itself, in place of --critical-batch-tokens and --calibration-tokens"
    add_number(parser, "--critical-batch-k", float, 1e-12, 1e24, itself, metavar="X")
    parser.add_argument(
        "--topology",
        choices=planner.TOPOLOGIES,
        default="once-round",
        help="how the sites synchronise (default once-round)",
    )


def inputs_of(options):
    given = {}
    for _, field, kind, _, _, unit, _ in FLAGS:
        value = getattr(options, field)
        if value is not None:
            given[field] = value * unit if kind is float else value
    if options.critical_batch_k is not None:
        for flag, field, *_ in FLAGS:
            if field in given and field in ("critical_tokens", "calibration_tokens"):
                why = "k is B_crit / sqrt(tokens), give it or what it follows from"
                options.refuse(f"--critical-batch-k and {flag}: {why}")
        given |= {"critical_tokens": options.critical_batch_k, "calibration_tokens": 1.0}
    if "sites" in given:
        given.setdefault("hops", given["sites"])
    return planner.Inputs(**given, topology=options.topology)


def value_text(value, unit):
    if value is None:
        return "none"
    if unit is None:
        return quantities.count(value)
    return quantities.si(value, unit) if unit != "s" else ("-" if value < 0 else "") + quantities.seconds(abs(value))


def topology_text(one):
    return quantities.si(one.bandwidth, "bit/s") if one.bandwidth is not None else "none: its rounds alone take longer"


def tables_of(made, reference):
    columns = ["<", "<formula", "value"] + (["source prints"] if reference else [])
    table = output.table("Synchronous training over several sites", *columns)
    last = iter(LAST_FORMULAS[made.topology])
    for field, name, formula, unit in ROWS:
        cells = [name, next(last) if formula is None else formula, value_text(getattr(made, field), unit)]
        if reference:
            cells.append(value_text(planner.SOURCE[field], unit) if field in planner.SOURCE else "")
        output.add_row(table, *cells, style="bold" if field == "bandwidth" else None)
    title = "Ways to synchronise the sites: bandwidth of each direction of each edge"
    shapes = output.table(title, "<topology", "<T_sync", "latency", "BW needed")
    for one in made.topologies:
        output.add_row(shapes, one.name, one.formula, quantities.seconds(one.latency_s), topology_text(one))
    return [table, shapes]


def lines_of(made, inputs, reference):
    if not made.feasible:
        return [planner.impossibility(made)]
    lines = [
        f"with {said}: T_sync {quantities.seconds(sync_s)}, BW_min "
        f"{quantities.si(bandwidth, 'bit/s') if bandwidth else 'none'}"
        for said, sync_s, bandwidth in planner.with_rounded_steps(made)
    ]
    if reference:
        lines.append(planner.ROUNDING)
    days = 6 * inputs.parameters * inputs.tokens / made.flops / planner.SECONDS_A_DAY
    return lines + [
        f"a site's own fabric has {made.fabric / made.bandwidth:.3g} times BW_min; 6 x parameters x tokens "
        f"would take {days:,.0f} days at these FLOPS, where {inputs.days:g} are given"
    ]


def run(options):
    inputs = inputs_of(options)
    made = planner.plan(inputs)
    reference = inputs == planner.Inputs()
    record = {
        "schema": "gloo-bypass/model-plan/1",
        "inputs": asdict(inputs),
        **made.as_record(),
        "answer": None if made.feasible else planner.impossibility(made),
        "rounded": [dict(zip(("what", "sync_s", "bandwidth"), one)) for one in planner.with_rounded_steps(made)],
    }
    output.finish(options, record, tables_of(made, reference), lines_of(made, inputs, reference))
    return 0
