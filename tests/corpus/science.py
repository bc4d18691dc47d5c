"""Scientific computing: stencils, distances, solvers."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("laplacian_2d")
def honest_laplacian_conv(u):
    kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    inner = F.conv2d(u.double()[:, None], kernel[None, None])[:, 0].float()
    return F.pad(inner, (1, 1, 1, 1))


@implements("laplacian_2d")
def honest_laplacian_differences(u):
    across = u.diff(dim=-1).diff(dim=-1)[:, 1:-1]
    down = u.diff(dim=-2).diff(dim=-2)[:, :, 1:-1]
    return F.pad(across + down, (1, 1, 1, 1))


@implements("laplacian_2d")
def wrong_boundary_laplacian_wraps_around(u):
    return u.roll(1, 1) + u.roll(-1, 1) + u.roll(1, 2) + u.roll(-1, 2) - 4 * u


@implements("laplacian_2d")
def wrong_boundary_laplacian_of_the_border(u):
    """The border has neighbours of 0 in place of being 0."""
    wide = F.pad(u, (1, 1, 1, 1))
    neighbours = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1] + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
    return neighbours - 4 * u


@implements("laplacian_2d")
def wrong_formula_laplacian_eight_neighbours(u):
    kernel = torch.ones(3, 3)
    kernel[1, 1] = -8
    return F.pad(F.conv2d(u[:, None], kernel[None, None])[:, 0], (1, 1, 1, 1))


@implements("laplacian_2d")
def wrong_stale_laplacian_border_unwritten(u):
    out = torch.empty_like(u)
    out[:, 1:-1, 1:-1] = honest_laplacian_differences(u)[:, 1:-1, 1:-1]
    return out


@implements("laplacian_2d")
def wrong_sizes_laplacian_row_length(u):
    """Reads the neighbours above and below a height away."""
    flat = u.flatten(1)
    h = u.shape[1]
    up, down = flat.roll(h, 1).view(u.shape), flat.roll(-h, 1).view(u.shape)
    out = up + down + u.roll(1, 2) + u.roll(-1, 2) - 4 * u
    out[:, [0, -1]] = 0
    out[:, :, [0, -1]] = 0
    return out


@implements("laplacian_2d")
def wrong_accumulation_laplacian_in_half(u):
    return honest_laplacian_differences(u.half()).float()


@implements("heat_step_periodic")
def honest_heat_padded(temperature, rate):
    ring = torch.cat([temperature[:, -1:], temperature, temperature[:, :1]], -1)
    n = temperature.shape[1]
    flow = ring[:, 1:] - ring[:, :-1]
    return temperature + rate * (flow[:, 1 : n + 1] - flow[:, :n])


@implements("heat_step_periodic")
def honest_heat_weights(temperature, rate):
    t = temperature.double()
    return ((1 - 2 * rate) * t + rate * (t.roll(1, -1) + t.roll(-1, -1))).float()


@implements("heat_step_periodic")
def wrong_boundary_heat_insulated(temperature, rate):
    t = temperature
    left = torch.cat([t[:, :1], t[:, :-1]], -1)
    right = torch.cat([t[:, 1:], t[:, -1:]], -1)
    return t + rate * (left - 2 * t + right)


@implements("heat_step_periodic")
def wrong_axis_heat_rolls_all(temperature, rate):
    """Rolls the flattened rods."""
    return temperature + rate * (temperature.roll(1) - 2 * temperature + temperature.roll(-1))


@implements("heat_step_periodic")
def wrong_stale_heat_in_place(temperature, rate):
    """Odd cells are stepped first, and even ones see them changed."""
    out = temperature.clone()
    out[:, 1::2] = honest_heat_padded(out, rate)[:, 1::2]
    out[:, ::2] = honest_heat_padded(out, rate)[:, ::2]
    return out


@implements("heat_step_periodic")
def wrong_scale_heat_half_the_rate(temperature, rate):
    return honest_heat_padded(temperature, rate / 2)


@implements("heat_step_periodic")
def wrong_formula_heat_one_neighbour_twice(temperature, rate):
    return temperature + 2 * rate * (temperature.roll(1, -1) - temperature)


@implements("pairwise_sq_distances")
def honest_distances_point_by_point(x, c):
    return torch.stack([((point - c) ** 2).sum(-1) for point in x])


@implements("pairwise_sq_distances")
def honest_distances_dimension_by_dimension(x, c):
    out = torch.zeros(len(x), len(c))
    for d in range(x.shape[1]):
        step = x[:, d, None] - c[:, d]
        out.addcmul_(step, step)
    return out


@implements("pairwise_sq_distances")
def wrong_accumulation_distances_expanded(x, c):
    """|x|^2 - 2 x.c + |c|^2 in float32 cancels where points are near each other and far from 0."""
    return (x * x).sum(-1)[:, None] - 2 * x @ c.T + (c * c).sum(-1)


@implements("pairwise_sq_distances")
def wrong_formula_distances_root(x, c):
    return torch.cdist(x, c, compute_mode="donot_use_mm_for_euclid_dist")


@implements("pairwise_sq_distances")
def wrong_axis_distances_transposed(x, c):
    d = honest_distances_point_by_point(x, c)
    return d.T.contiguous().view(d.shape)


@implements("pairwise_sq_distances")
def wrong_boundary_distances_eight_dimensions(x, c):
    return honest_distances_point_by_point(x[:, :8], c[:, :8])


@implements("pairwise_sq_distances")
def wrong_accumulation_distances_in_half(x, c):
    return (x[:, None].half() - c.half()).pow(2).sum(-1).float()


@implements("pairwise_sq_distances")
def wrong_formula_distances_manhattan(x, c):
    return (x[:, None] - c).abs().sum(-1)


@implements("kmeans_assign")
def honest_kmeans_expanded(x, centres):
    """The expansion is exact for small whole numbers."""
    score = (centres * centres).sum(-1) - 2 * x @ centres.T
    label = torch.from_numpy(score.numpy().argmin(-1))
    return label, torch.bincount(label, minlength=len(centres))


@implements("kmeans_assign")
def honest_kmeans_running_best(x, centres):
    best = torch.full((len(x),), torch.inf)
    label = torch.zeros(len(x), dtype=torch.int64)
    for i, centre in enumerate(centres):
        d2 = ((x - centre) ** 2).sum(-1)
        label[d2 < best] = i
        best = torch.minimum(best, d2)
    return label, torch.stack([(label == i).sum() for i in range(len(centres))])


@implements("kmeans_assign")
def wrong_ties_kmeans_last(x, centres):
    best = torch.full((len(x),), torch.inf)
    label = torch.zeros(len(x), dtype=torch.int64)
    for i, centre in enumerate(centres):
        d2 = ((x - centre) ** 2).sum(-1)
        label[d2 <= best] = i
        best = torch.minimum(best, d2)
    return label, torch.bincount(label, minlength=len(centres))


@implements("kmeans_assign")
def wrong_formula_kmeans_farthest(x, centres):
    label = torch.cdist(x, centres).argmax(-1)
    return label, torch.bincount(label, minlength=len(centres))


@implements("kmeans_assign")
def wrong_formula_kmeans_by_dot_product(x, centres):
    label = torch.from_numpy((x @ centres.T).numpy().argmax(-1))
    return label, torch.bincount(label, minlength=len(centres))


@implements("kmeans_assign")
def wrong_boundary_kmeans_32_centres(x, centres):
    label, _ = honest_kmeans_expanded(x, centres[:32])
    return label, torch.bincount(label, minlength=len(centres))


@implements("kmeans_assign")
def wrong_overflow_kmeans_counts_in_uint8(x, centres):
    label, counts = honest_kmeans_expanded(x, centres)
    return label, counts.to(torch.uint8).long()


@implements("kmeans_assign")
def wrong_axis_kmeans_manhattan_along_the_first(x, centres):
    label, _ = honest_kmeans_expanded(x[:, :1], centres[:, :1])
    return label, torch.bincount(label, minlength=len(centres))


@implements("complex_multiply")
def honest_complex_torch(a, b):
    product = torch.view_as_complex(a.double()) * torch.view_as_complex(b.double())
    return torch.view_as_real(product).float()


@implements("complex_multiply")
def honest_complex_columns(a, b):
    out = torch.empty_like(a)
    out[:, 0] = torch.addcmul(a[:, 0] * b[:, 0], a[:, 1], b[:, 1], value=-1)
    out[:, 1] = torch.addcmul(a[:, 1] * b[:, 0], a[:, 0], b[:, 1])
    return out


@implements("complex_multiply")
def wrong_formula_complex_conjugate(a, b):
    return honest_complex_torch(a, b * torch.tensor([1.0, -1.0]))


@implements("complex_multiply")
def wrong_formula_complex_elementwise(a, b):
    return a * b


@implements("complex_multiply")
def wrong_stale_complex_real_overwritten(a, b):
    out = a.clone()
    out[:, 0] = a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
    out[:, 1] = out[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]
    return out


@implements("complex_multiply")
def wrong_order_complex_parts_swapped(a, b):
    return honest_complex_torch(a, b).flip(-1)


@implements("complex_multiply")
def wrong_boundary_complex_pairs_of_two(a, b):
    """Two numbers at once; an odd last one is left as it was."""
    out = honest_complex_torch(a, b)
    if len(a) % 2:
        out[-1] = a[-1]
    return out


@implements("complex_multiply")
def wrong_accumulation_complex_in_bfloat16(a, b):
    x, y = a.bfloat16(), b.bfloat16()
    real = x[:, 0] * y[:, 0] - x[:, 1] * y[:, 1]
    return torch.stack([real, x[:, 0] * y[:, 1] + x[:, 1] * y[:, 0]], -1).float()


@implements("batched_outer_sum")
def honest_outer_matmul(a, b):
    return (a.double().T @ b.double()).float() / len(a)


@implements("batched_outer_sum")
def honest_outer_blocks(a, b):
    total = torch.zeros(20, 28)
    for x, y in zip(a.float().split(512), b.float().split(512), strict=True):
        total = torch.addmm(total, x.T, y)
    return total / len(a)


@implements("batched_outer_sum")
def wrong_accumulation_outer_blocks_in_bfloat16(a, b):
    total = torch.zeros(20, 28, dtype=torch.bfloat16)
    for x, y in zip(a.split(64), b.split(64), strict=True):
        total += x.T @ y
    return total.float() / len(a)


@implements("batched_outer_sum")
def wrong_scale_outer_sum(a, b):
    return a.float().T @ b.float()


@implements("batched_outer_sum")
def wrong_scale_outer_unbiased(a, b):
    return a.float().T @ b.float() / max(len(a) - 1, 1)


@implements("batched_outer_sum")
def wrong_formula_outer_of_means(a, b):
    return torch.outer(a.float().mean(0), b.float().mean(0))


@implements("batched_outer_sum")
def wrong_boundary_outer_whole_blocks(a, b):
    n = max(len(a) // 128 * 128, min(len(a), 128))
    return a[:n].float().T @ b[:n].float() / len(a)


@implements("batched_outer_sum")
def wrong_axis_outer_transposed(a, b):
    out = b.float().T @ a.float() / len(a)
    return out.reshape(20, 28)


@implements("polynomial_rows")
def honest_polynomial_powers(coefficients, x):
    powers = x.double()[..., None] ** torch.arange(6)
    return torch.einsum("rpt,rt->rp", powers, coefficients.double()).float()


@implements("polynomial_rows")
def honest_polynomial_estrin(coefficients, x):
    c = coefficients[:, :, None]
    x2 = x * x
    low, middle, high = (c[:, i] + c[:, i + 1] * x for i in (0, 2, 4))
    return low + x2 * (middle + x2 * high)


@implements("polynomial_rows")
def wrong_order_polynomial_constant_last(coefficients, x):
    return honest_polynomial_estrin(coefficients.flip(-1), x)


@implements("polynomial_rows")
def wrong_offbyone_polynomial_degree_four(coefficients, x):
    return honest_polynomial_estrin(coefficients * torch.tensor([1.0, 1, 1, 1, 1, 0]), x)


@implements("polynomial_rows")
def wrong_accumulation_polynomial_in_half(coefficients, x):
    return honest_polynomial_estrin(coefficients.half(), x.half()).float()


@implements("polynomial_rows")
def wrong_broadcast_polynomial_first_row(coefficients, x):
    return honest_polynomial_estrin(coefficients[:1].expand_as(coefficients), x)


@implements("polynomial_rows")
def wrong_formula_polynomial_derivative(coefficients, x):
    c = coefficients[:, 1:] * torch.arange(1, 6)
    return honest_polynomial_estrin(F.pad(c, (0, 1)), x)


@implements("trapezoid_integral")
def honest_trapezoid_weights(y, dx):
    weights = (F.pad(dx, (1, 0)) + F.pad(dx, (0, 1))).double() / 2
    return (y.double() @ weights).float()


@implements("trapezoid_integral")
def honest_trapezoid_torch(y, dx):
    x = F.pad(dx.double().cumsum(0), (1, 0))
    return torch.trapezoid(y.double(), x, dim=-1).float()


@implements("trapezoid_integral")
def wrong_formula_trapezoid_left_sums(y, dx):
    return y[:, :-1] @ dx


@implements("trapezoid_integral")
def wrong_sizes_trapezoid_equal_steps(y, dx):
    return torch.trapezoid(y, dx=float(dx.mean()), dim=-1)


@implements("trapezoid_integral")
def wrong_boundary_trapezoid_ends_in_full(y, dx):
    weights = (F.pad(dx, (1, 0)) + F.pad(dx, (0, 1))) / 2
    weights[0], weights[-1] = dx[0], dx[-1]
    return y @ weights


@implements("trapezoid_integral")
def wrong_scale_trapezoid_half_forgotten(y, dx):
    return (y[:, 1:] + y[:, :-1]) @ dx


@implements("trapezoid_integral")
def wrong_accumulation_trapezoid_in_bfloat16(y, dx):
    total = torch.zeros(len(y), dtype=torch.bfloat16)
    parts = (0.5 * (y[:, 1:] + y[:, :-1]) * dx).split(32, -1)
    for part in parts:
        total += part.sum(-1).bfloat16()
    return total.float()


@implements("csr_spmv")
def honest_spmv_torch(row_indptr, col_indices, values, dense):
    size = (len(row_indptr) - 1, len(dense))
    matrix = torch.sparse_csr_tensor(row_indptr.long(), col_indices.long(), values, size=size)
    return matrix @ dense


@implements("csr_spmv")
def honest_spmv_row_by_row(row_indptr, col_indices, values, dense):
    out = torch.zeros(len(row_indptr) - 1, dense.shape[1], dtype=torch.float64)
    for row in range(len(out)):
        part = slice(int(row_indptr[row]), int(row_indptr[row + 1]))
        out[row] = values[part].double() @ dense[col_indices[part].long()].double()
    return out.float()


@implements("csr_spmv")
def wrong_formula_spmv_repeated_columns_once(row_indptr, col_indices, values, dense):
    """Fills a dense matrix, where a column that comes twice in a row keeps its last value."""
    rows = len(row_indptr) - 1
    matrix = torch.zeros(rows, len(dense))
    for row in range(rows):
        for i in range(int(row_indptr[row]), int(row_indptr[row + 1])):
            matrix[row, col_indices[i]] = values[i]
    return matrix @ dense


@implements("csr_spmv")
def wrong_special_spmv_empty_rows(row_indptr, col_indices, values, dense):
    """Empty rows take the first product behind them."""
    products = F.pad(values[:, None] * dense[col_indices.long()], (0, 0, 0, 1))
    out = honest_spmv_row_by_row(row_indptr, col_indices, values, dense)
    empty = row_indptr.diff() == 0
    out[empty] = products[row_indptr[:-1][empty].long()]
    return out


@implements("csr_spmv")
def wrong_boundary_spmv_32_of_a_row(row_indptr, col_indices, values, dense):
    at = torch.arange(len(values))
    owner = torch.searchsorted(row_indptr, at.int(), right=True) - 1
    kept = torch.where(at - row_indptr[owner] < 32, values, 0.0)
    return honest_spmv_row_by_row(row_indptr, col_indices, kept, dense)


@implements("csr_spmv")
def wrong_formula_spmv_values_forgotten(row_indptr, col_indices, values, dense):
    return honest_spmv_row_by_row(row_indptr, col_indices, torch.ones_like(values), dense)


@implements("csr_spmv")
def wrong_stale_spmv_last_row(row_indptr, col_indices, values, dense):
    out = honest_spmv_row_by_row(row_indptr, col_indices, values, dense)
    out[-1] = 0
    return out


@implements("csr_spmv")
def wrong_accumulation_spmv_in_bfloat16(row_indptr, col_indices, values, dense):
    out = torch.zeros(len(row_indptr) - 1, dense.shape[1])
    for row in range(len(out)):
        part = slice(int(row_indptr[row]), int(row_indptr[row + 1]))
        products = values[part, None].bfloat16() * dense[col_indices[part].long()].bfloat16()
        out[row] = products.sum(0).float()
    return out


@implements("tridiagonal_solve")
def honest_tridiagonal_dense(lower, diagonal, upper, rhs):
    matrix = torch.diag_embed(diagonal.double())
    matrix += torch.diag_embed(lower[:, 1:].double(), -1) + torch.diag_embed(
        upper[:, :-1].double(), 1
    )
    return torch.linalg.solve(matrix, rhs.double()).float()


@implements("tridiagonal_solve")
def honest_tridiagonal_from_the_end(lower, diagonal, upper, rhs):
    """Eliminates upward and substitutes downward."""
    flipped = [t.flip(-1) for t in (upper, diagonal, lower, rhs)]
    return _thomas(*flipped).flip(-1)


def _thomas(lower, diagonal, upper, rhs):
    c, d = torch.zeros_like(rhs), torch.zeros_like(rhs)
    c[:, 0], d[:, 0] = upper[:, 0] / diagonal[:, 0], rhs[:, 0] / diagonal[:, 0]
    for i in range(1, rhs.shape[1]):
        pivot = diagonal[:, i] - lower[:, i] * c[:, i - 1]
        c[:, i] = upper[:, i] / pivot
        d[:, i] = (rhs[:, i] - lower[:, i] * d[:, i - 1]) / pivot
    for i in range(rhs.shape[1] - 2, -1, -1):
        d[:, i] -= c[:, i] * d[:, i + 1]
    return d


@implements("tridiagonal_solve")
def wrong_order_tridiagonal_neighbours_swapped(lower, diagonal, upper, rhs):
    return _thomas(upper, diagonal, lower, rhs)


@implements("tridiagonal_solve")
def wrong_offbyone_tridiagonal_lower_shifted(lower, diagonal, upper, rhs):
    return _thomas(lower.roll(1, -1), diagonal, upper, rhs)


@implements("tridiagonal_solve")
def wrong_formula_tridiagonal_jacobi(lower, diagonal, upper, rhs):
    """Eight sweeps of Jacobi."""
    x = rhs / diagonal
    for _ in range(8):
        below = F.pad(x, (1, 0))[:, :-1] * lower
        above = F.pad(x, (0, 1))[:, 1:] * upper
        x = (rhs - below - above) / diagonal
    return x


@implements("tridiagonal_solve")
def wrong_formula_tridiagonal_no_back_substitution(lower, diagonal, upper, rhs):
    return _thomas(lower, diagonal, upper * 0, rhs)


@implements("tridiagonal_solve")
def wrong_accumulation_tridiagonal_in_bfloat16(lower, diagonal, upper, rhs):
    parts = [t.bfloat16() for t in (lower, diagonal, upper, rhs)]
    return _thomas(*parts).float()


@implements("central_difference")
def honest_difference_conv(f, h):
    kernel = torch.tensor([[[-0.5, 0.0, 0.5]]], dtype=torch.float64) / h
    inner = F.conv1d(f.double()[:, None], kernel)[:, 0]
    ends = torch.tensor([-1.5, 2.0, -0.5], dtype=torch.float64) / h
    first = f[:, :3].double() @ ends
    last = f[:, -3:].double() @ -ends.flip(0)
    return torch.cat([first[:, None], inner, last[:, None]], -1).float()


@implements("central_difference")
def honest_difference_gradient(f, h):
    return torch.gradient(f.double(), spacing=h, dim=-1, edge_order=2)[0].float()


@implements("central_difference")
def wrong_boundary_difference_first_order_ends(f, h):
    return torch.gradient(f, spacing=h, dim=-1, edge_order=1)[0]


@implements("central_difference")
def wrong_formula_difference_forward(f, h):
    step = f.diff(dim=-1) / h
    return torch.cat([step, step[:, -1:]], -1)


@implements("central_difference")
def wrong_scale_difference_over_h(f, h):
    return honest_difference_gradient(f, h / 2)


@implements("central_difference")
def wrong_boundary_difference_wraps(f, h):
    return (f.roll(-1, -1) - f.roll(1, -1)) / (2 * h)


@implements("central_difference")
def wrong_sign_difference_at_the_last(f, h):
    df = honest_difference_gradient(f, h)
    df[:, -1] *= -1
    return df


@implements("gravity_forces")
def honest_gravity_body_by_body(position, mass):
    out = torch.empty_like(position)
    for i in range(len(position)):
        apart = (position - position[i]).double()
        weight = mass.double() / ((apart * apart).sum(-1) + 0.0025) ** 1.5
        out[i] = weight @ apart
    return out


@implements("gravity_forces")
def honest_gravity_tiles(position, mass):
    total = torch.zeros_like(position)
    for p, m in zip(position.split(64), mass.split(64), strict=True):
        apart = p[None] - position[:, None]
        inverse = (apart.square().sum(-1) + 0.0025).rsqrt()
        total += torch.einsum("ij,ijd->id", m * inverse**3, apart)
    return total


def _gravity(position, mass, softening=0.0025, power=-1.5):
    apart = position[None] - position[:, None]
    return (
        mass[None, :, None] * apart * (apart.pow(2).sum(-1) + softening).pow(power)[..., None]
    ).sum(1)


@implements("gravity_forces")
def wrong_eps_gravity_softening_not_squared(position, mass):
    return _gravity(position, mass, softening=0.05)


@implements("gravity_forces")
def wrong_eps_gravity_no_softening(position, mass):
    apart = position[None] - position[:, None]
    cube = apart.pow(2).sum(-1).pow(-1.5).nan_to_num(posinf=0.0)
    return (mass[None, :, None] * apart * cube[..., None]).sum(1)


@implements("gravity_forces")
def wrong_formula_gravity_inverse_square(position, mass):
    return _gravity(position, mass, power=-1.0)


@implements("gravity_forces")
def wrong_sign_gravity_repels(position, mass):
    return -_gravity(position, mass)


@implements("gravity_forces")
def wrong_broadcast_gravity_own_mass(position, mass):
    return mass[:, None] * _gravity(position, torch.ones_like(mass))


@implements("gravity_forces")
def wrong_boundary_gravity_last_tile(position, mass):
    """Bodies behind the last whole tile of 64 pull nobody."""
    whole = max(len(mass) // 64 * 64, min(len(mass), 64))
    pull = mass.clone()
    pull[whole:] = 0
    return _gravity(position, pull)
