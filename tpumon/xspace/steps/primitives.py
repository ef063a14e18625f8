"""Names of the functions that JAX itself compiles when a program calls an operation outside of `jax.jit`."""

from __future__ import annotations

import re

# Operations of jax.lax and jax.numpy, and those of jax.nn and jax.random that compile as a function of their own.
_NAMES = """
" abs absolute acos acosh add all all_gather all_to_all amax amin any append arange arccos arcsin arctan arctan2
argmax argmin argpartition argsort array_equal asin asinh atan atan2 atanh average bernoulli bitcast_convert_type
bitwise_and bitwise_not bitwise_or bitwise_xor broadcast broadcast_in_dim cbrt ceil cholesky choice clamp clip
column_stack complex concatenate conj conv_general_dilated convert_element_type convolve copy cos cosh count_nonzero
cross cumlogsumexp cummax cummin cumprod cumsum delete det diag diagonal diff div divide divmod dot dot_general
dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice
dynamic_update_slice_in_dim eig eigh einsum elu eq equal erf erf_inv erfc exp exp2 expand_dims expm1 eye fft flip
floor floor_divide fmod full full_like gather ge gelu geqrf greater greater_equal gt heaviside hstack hypot imag inner
integer_pow inv iota is_finite isclose isfinite isinf isnan kron le leaky_relu less less_equal lgamma linspace log
log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor logistic logsumexp lt lu matmul
max maximum mean median min minimum mod moveaxis mul multiply nan_to_num ndtri ne neg negative nextafter nonzero norm
normal not not_equal one_hot ones or outer pad percentile permutation population_count pow power prod psum qr quantile
randint random_bits ravel real reciprocal reduce reduce_and reduce_max reduce_min reduce_or reduce_precision
reduce_prod reduce_sum reduce_window relu rem remainder repeat reshape rev rng_bit_generator rng_uniform roll rot90
round rsqrt scatter scatter-add scatter_add searchsorted select select_and_scatter_add select_n shift_left
shift_right_logical sigmoid sign silu sin sinh slice softmax softplus solve sort split sqrt square squeeze stack std
sub subtract sum svd swapaxes take take_along_axis tan tanh tensordot threefry2x32 tile top_k trace transpose tri
triangular_solve tril triu true_divide trunc uniform unique unstack vdot vstack where xor zeros zeros_like
"""
_KNOWN = frozenset(_NAMES.split())
# jax.numpy's own helpers: _where, _reduce_sum, _threefry_split. `_fun` is what pmap calls a program's function.
_HELPER = re.compile(r"_(?!fun$)[a-z0-9_]+")


def is_primitive(function: str) -> bool:
    """Whether JAX's eager dispatch compiles a function of this name.

    Args:
        function: with or without the `jit_` of its module.
    """
    name = function.removeprefix("jit_")
    return name in _KNOWN or _HELPER.fullmatch(name) is not None
