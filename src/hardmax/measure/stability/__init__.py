"""What remains of the hard geometry at a finite temperature.

Every temperature here applies to the scores that go with it: weights are softmax(scores / temperature). On raw dot
products <q, k> a standard head has temperature sqrt(d_k): see ``standard_temperature``.
"""

from hardmax.measure.stability.certificates import Certificate as Certificate
from hardmax.measure.stability.certificates import StreamSummary as StreamSummary
from hardmax.measure.stability.certificates import certify as certify
from hardmax.measure.stability.certificates import certify_blocks as certify_blocks
from hardmax.measure.stability.certificates import certify_stream as certify_stream
from hardmax.measure.stability.curvature import competitor_curvature as competitor_curvature
from hardmax.measure.stability.curvature import hessian_supremum as hessian_supremum
from hardmax.measure.stability.margins import StabilityBounds as StabilityBounds
from hardmax.measure.stability.margins import bounds as bounds
from hardmax.measure.stability.margins import competitor_weight as competitor_weight
from hardmax.measure.stability.margins import margin_for_share as margin_for_share
from hardmax.measure.stability.margins import softmax_gap as softmax_gap
from hardmax.measure.stability.margins import standard_temperature as standard_temperature
from hardmax.measure.stability.margins import transition_width as transition_width
from hardmax.measure.stability.networks import HeadCertificate as HeadCertificate
from hardmax.measure.stability.networks import NetworkCertificate as NetworkCertificate
from hardmax.measure.stability.networks import network as network
from hardmax.measure.stability.routing import RoutingRadius as RoutingRadius
from hardmax.measure.stability.routing import query_radius as query_radius
from hardmax.measure.stability.routing import routing_radius as routing_radius
from hardmax.views import own_names


def __dir__() -> list[str]:
    return own_names(globals())
