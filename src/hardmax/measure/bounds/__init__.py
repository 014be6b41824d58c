"""How many cells there can be: exact integers, each saying whether it is attained.

``hm.bounds.as_published`` holds the same quantities as the papers print them.
"""

from hardmax.measure.bounds import as_published as as_published
from hardmax.measure.bounds.attention import head_exponent as head_exponent
from hardmax.measure.bounds.attention import key_exponent as key_exponent
from hardmax.measure.bounds.attention import max_joint_cells as max_joint_cells
from hardmax.measure.bounds.attention import max_log_lifted_cells as max_log_lifted_cells
from hardmax.measure.bounds.attention import rope_live_keys as rope_live_keys
from hardmax.measure.bounds.budgets import Budget as Budget
from hardmax.measure.bounds.budgets import attention_parameters as attention_parameters
from hardmax.measure.bounds.budgets import compare_budgets as compare_budgets
from hardmax.measure.bounds.deep import DeepInterval as DeepInterval
from hardmax.measure.bounds.deep import cells_upper_by_rank as cells_upper_by_rank
from hardmax.measure.bounds.deep import deep_interval as deep_interval
from hardmax.measure.bounds.deep import line_maximum as line_maximum
from hardmax.measure.bounds.expectations import GrowthLimit as GrowthLimit
from hardmax.measure.bounds.expectations import Mean as Mean
from hardmax.measure.bounds.expectations import expected_block_cells as expected_block_cells
from hardmax.measure.bounds.expectations import expected_joint_cells as expected_joint_cells
from hardmax.measure.bounds.expectations import expected_joint_cells_limit as expected_joint_cells_limit
from hardmax.measure.bounds.feedforward import maxout_folds as maxout_folds
from hardmax.measure.bounds.feedforward import maxout_layer as maxout_layer
from hardmax.measure.bounds.feedforward import maxout_lower as maxout_lower
from hardmax.measure.bounds.feedforward import maxout_upper as maxout_upper
from hardmax.measure.bounds.feedforward import montufar_lower as montufar_lower
from hardmax.measure.bounds.feedforward import montufar_upper as montufar_upper
from hardmax.measure.bounds.feedforward import serra as serra
from hardmax.measure.bounds.feedforward import zaslavsky as zaslavsky
from hardmax.measure.bounds.transformers import Growth as Growth
from hardmax.measure.bounds.transformers import block_upper as block_upper
from hardmax.measure.bounds.transformers import cells_lower as cells_lower
from hardmax.measure.bounds.transformers import cells_upper as cells_upper
from hardmax.measure.bounds.transformers import grid_cells as grid_cells
from hardmax.measure.bounds.transformers import growth_per_block as growth_per_block
from hardmax.measure.bounds.transformers import log10_cells_lower as log10_cells_lower
from hardmax.measure.bounds.transformers import log10_cells_upper as log10_cells_upper
from hardmax.views import own_names


def __dir__() -> list[str]:
    return own_names(globals(), "as_published")
