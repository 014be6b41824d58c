"""What remains of the hard geometry at a finite temperature.

Every temperature here applies to the scores that go with it: weights are softmax(scores / temperature). On raw dot
products <q, k> a standard head has temperature sqrt(d_k): see ``standard_temperature``.
"""

from hardmax.measurements.stability.certificates import Certificate as Certificate
from hardmax.measurements.stability.certificates import StreamSummary as StreamSummary
from hardmax.measurements.stability.certificates import certify as certify
from hardmax.measurements.stability.certificates import certify_blocks as certify_blocks
from hardmax.measurements.stability.certificates import certify_stream as certify_stream
from hardmax.measurements.stability.curvature import competitor_curvature as competitor_curvature
from hardmax.measurements.stability.curvature import hessian_supremum as hessian_supremum
from hardmax.measurements.stability.margins import StabilityBounds as StabilityBounds
from hardmax.measurements.stability.margins import bounds as bounds
from hardmax.measurements.stability.margins import competitor_weight as competitor_weight
from hardmax.measurements.stability.margins import margin_for_share as margin_for_share
from hardmax.measurements.stability.margins import softmax_gap as softmax_gap
from hardmax.measurements.stability.margins import standard_temperature as standard_temperature
from hardmax.measurements.stability.margins import transition_width as transition_width
from hardmax.measurements.stability.routing import RoutingRadius as RoutingRadius
from hardmax.measurements.stability.routing import query_radius as query_radius
from hardmax.measurements.stability.routing import routing_radius as routing_radius
