// Support vector machines on a precomputed kernel, one for each C of a rising grid.
//
// The problem, the selection of two coordinates per step (Fan, Chen and Lin, 2005) and the tolerance are those of
// joao.kernels.svm_dual and of libsvm. With b = y alpha the problem has no signs: maximise sum_i y_i b_i - b'Kb / 2 with
// sum b = 0 and b_i between 0 and C (y_i = 1) or between -C and 0. Its gradient is slope = y - K b.
//
// Steps are made in float32 on the active rows, whose kernel is copied together. A round ends when these rows are
// optimal; then the slopes of all rows are computed from b in float64. They decide whether the machine is finished and,
// if it is not, which rows are active next. So float32 changes the steps, but not how exact the result is.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

#if defined(__AVX512F__)
constexpr int V = 16;
#elif defined(__AVX2__)
constexpr int V = 8;
#else
constexpr int V = 4;
#endif
typedef float vec __attribute__((vector_size(V * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(V * 4), aligned(4), may_alias));
constexpr int CHAINS = 2;  // of instructions that depend on each other, side by side
constexpr float INF = std::numeric_limits<float>::infinity(), CURVE = 1e-12f;  // CURVE: for equal rows, as in libsvm

inline vec load(const float* p) { return *reinterpret_cast<const vec*>(p); }
inline long padded(long n) { return (n + CHAINS * V - 1) / (CHAINS * V) * (CHAINS * V); }

// The largest number of all lanes and what is in its place in `where`; without branches, which would be mispredicted.
inline std::pair<float, int> largest(const vec (&values)[CHAINS], const ivec (&where)[CHAINS]) {
    float value[CHAINS * V];
    int32_t place[CHAINS * V];
    memcpy(value, values, sizeof value);
    memcpy(place, where, sizeof place);
    for (int half = CHAINS * V / 2; half; half /= 2)
        for (int l = 0; l < half; l++) {
            const bool is_better = value[l + half] > value[l];
            value[l] = is_better ? value[l + half] : value[l];
            place[l] = is_better ? place[l + half] : place[l];
        }
    return {value[0], place[0]};
}

// Rows that take part in the steps. Padding has fall 0 and rise -inf, so that it is never selected.
struct Active {
    std::vector<int32_t> rows;
    std::vector<float> copied, diagonal, slope, rise, fall;
    const float* kernel;
    long stride;
};

class Machine {
    const long n, positive, stride;
    std::vector<float> kernel;
    std::vector<double> exact;  // slopes
    Active active;

    double upper(long row) const { return row < positive ? bound : 0; }
    double lower(long row) const { return row < positive ? 0 : -bound; }
    double label(long row) const { return row < positive ? 1 : -1; }

public:
    double bound = 0;
    std::vector<double> b;
    int64_t steps = 0;

    Machine(const float* all, long ld, const int64_t* rows, long n, long positive)
        : n(n), positive(positive), stride(padded(n)), kernel(n * stride), exact(n), b(n) {
        std::vector<std::pair<long, long>> runs;  // of consecutive rows: first position and one past the last
        for (long k = 0; k < n; k++)
            if (k && rows[k] == rows[k - 1] + 1) runs.back().second++;
            else runs.emplace_back(k, k + 1);
        for (long r = 0; r < n; r++)
            for (const auto& [begin, end] : runs)
                memcpy(&kernel[r * stride + begin], all + rows[r] * ld + rows[begin], (end - begin) * sizeof(float));
    }

    bool is_finite() const {
        vec sum = {};
        for (long r = 0; r < n * stride; r += V) sum += 0.0f * load(kernel.data() + r);
        for (int l = 0; l < V; l++)
            if (sum[l] != 0) return false;
        return true;
    }

    // Scale the solution for the last C to where the objective is largest along this line.
    void warm_start(double next) {
        double linear = 0, quadratic = 0, largest = 0;
        for (long r = 0; r < n; r++) {
            linear += std::abs(b[r]);
            quadratic += b[r] * (label(r) - exact[r]);
            largest = std::max(largest, std::abs(b[r]));
        }
        if (largest > 0) {
            const double most = next / largest;
            const double scale = quadratic > 0 ? std::min(std::max(linear / quadratic, 1.0), most) : most;
            for (long r = 0; r < n; r++)
                b[r] = std::abs(b[r]) == largest && scale == most ? std::copysign(next, b[r]) : b[r] * scale;
        }
        bound = next;
    }

    // Compute all slopes; returns the largest gap between a row that can rise and one that can fall, and their middle.
    double gap(double& middle) {
        std::vector<double> total(stride);
        double* const sum = total.data();
        std::vector<int32_t> used;
        for (long r = 0; r < n; r++)
            if (b[r] != 0) used.push_back(int32_t(r));
        size_t at = 0;
        for (; at + 4 <= used.size(); at += 4) {
            const float* row[4];
            double by[4];
            for (int i = 0; i < 4; i++) row[i] = kernel.data() + used[at + i] * stride, by[i] = b[used[at + i]];
            for (long k = 0; k < stride; k++)
                sum[k] += by[0] * row[0][k] + by[1] * row[1][k] + by[2] * row[2][k] + by[3] * row[3][k];
        }
        for (; at < used.size(); at++)
            for (long k = 0; k < stride; k++) sum[k] += b[used[at]] * kernel[used[at] * stride + k];
        double top = -INFINITY, bottom = INFINITY;
        for (long r = 0; r < n; r++) {
            exact[r] = label(r) - sum[r];
            if (b[r] < upper(r)) top = std::max(top, exact[r]);
            if (b[r] > lower(r)) bottom = std::min(bottom, exact[r]);
        }
        middle = (top + bottom) / 2;
        return top - bottom;
    }

    // Take the rows inside their bounds and those that violate optimality, or almost.
    void choose(double gap, double middle) {
        active.rows.clear();
        for (long r = 0; r < n; r++) {
            const bool can_rise = b[r] < upper(r), can_fall = b[r] > lower(r);
            const double over = exact[r] - middle;
            if ((can_rise && can_fall) || (can_rise && over > -gap / 2) || (can_fall && over < gap / 2))
                active.rows.push_back(int32_t(r));
        }
        const long m = long(active.rows.size());
        active.stride = padded(m);
        if (m * 10 > n * 9) {
            active.rows.resize(n);
            for (long r = 0; r < n; r++) active.rows[r] = int32_t(r);
            active.stride = stride;
            active.kernel = kernel.data();
        } else {
            active.copied.assign(m * active.stride, 0);
            for (long r = 0; r < m; r++) {
                const float* from = kernel.data() + active.rows[r] * stride;
                float* to = active.copied.data() + r * active.stride;
                for (long k = 0; k < m; k++) to[k] = from[active.rows[k]];
            }
            active.kernel = active.copied.data();
        }
        active.diagonal.assign(active.stride, 0);
        active.slope.assign(active.stride, 0);
        active.rise.assign(active.stride, -INF);
        active.fall.assign(active.stride, 0);
        for (long r = 0; r < long(active.rows.size()); r++) {
            active.diagonal[r] = active.kernel[r * active.stride + r];
            active.slope[r] = float(exact[active.rows[r]] - middle);  // differences count: small numbers are exact
            mark(r);
        }
    }

    void mark(long r) {
        const long row = active.rows[r];
        active.rise[r] = b[row] < upper(row) ? 0 : -INF;
        active.fall[r] = b[row] > lower(row) ? 1 : 0;
    }

    // Step until the active rows are optimal.
    void solve(float tolerance, int64_t limit) {
        const long m = active.stride;
        float *const slope = active.slope.data(), *const rise = active.rise.data(), *const fall = active.fall.data();
        const float* const diagonal = active.diagonal.data();
        ivec lanes;
        for (int i = 0; i < V; i++) lanes[i] = i;
        const float* of_i = active.kernel;  // any row: the first update adds nothing
        const float* of_j = of_i;
        float step = 0;
        for (; steps < limit; steps++) {
            // Apply the last step and find i, whose slope is largest among the rows that can rise.
            vec best[CHAINS];
            ivec where[CHAINS] = {};
            for (int c = 0; c < CHAINS; c++) best[c] = vec{} - INF;
            for (long k = 0; k < m; k += CHAINS * V)
                for (int c = 0; c < CHAINS; c++) {
                    const long at = k + c * V;
                    const vec now = load(slope + at) - step * (load(of_i + at) - load(of_j + at));
                    *reinterpret_cast<vec*>(slope + at) = now;
                    const vec value = now + load(rise + at);
                    const ivec is_better = value > best[c];
                    best[c] = is_better ? value : best[c];
                    where[c] = is_better ? lanes + int(at) : where[c];
                }
            const auto [top, i] = largest(best, where);
            if (top == -INF) return;
            // Find j: the objective can rise by gap^2 / curve / 2. Fractions are compared without dividing.
            of_i = active.kernel + i * m;
            vec most[CHAINS] = {}, over[CHAINS], widest[CHAINS] = {};
            for (int c = 0; c < CHAINS; c++) over[c] = vec{} + 1.0f;
            for (long k = 0; k < m; k += CHAINS * V)
                for (int c = 0; c < CHAINS; c++) {
                    const long at = k + c * V;
                    vec gap = top - load(slope + at);
                    gap = (gap > 0.0f ? gap : vec{}) * load(fall + at);
                    vec curve = diagonal[i] + load(diagonal + at) - 2.0f * load(of_i + at);
                    curve = curve > CURVE ? curve : vec{} + CURVE;
                    widest[c] = gap > widest[c] ? gap : widest[c];
                    const vec square = gap * gap;
                    const ivec is_better = square * over[c] > most[c] * curve;
                    most[c] = is_better ? square : most[c];
                    over[c] = is_better ? curve : over[c];
                    where[c] = is_better ? lanes + int(at) : where[c];
                }
            for (int c = 0; c < CHAINS; c++) most[c] /= over[c];
            const auto [gain, j] = largest(most, where);
            const auto [gap, unused] = largest(widest, where);
            if (gap < tolerance) return;
            of_j = active.kernel + j * m;
            // Both coordinates stay inside their bounds. One that reaches a bound is set to it exactly.
            const long row_i = active.rows[i], row_j = active.rows[j];
            const double room_i = upper(row_i) - b[row_i], room_j = b[row_j] - lower(row_j);
            const double curve = std::max(diagonal[i] + diagonal[j] - 2 * of_i[j], CURVE);
            const double exact_step = std::min(double(top - slope[j]) / curve, std::min(room_i, room_j));
            b[row_i] = exact_step == room_i ? upper(row_i) : b[row_i] + exact_step;
            b[row_j] = exact_step == room_j ? lower(row_j) : b[row_j] - exact_step;
            step = float(exact_step);
            mark(i);
            mark(j);
        }
    }

    // The mean slope of the rows inside their bounds or, without such rows, the middle of what the others allow.
    double offset(double middle) const {
        double sum = 0;
        long inside = 0;
        for (long r = 0; r < n; r++)
            if (lower(r) < b[r] && b[r] < upper(r)) sum += exact[r], inside++;
        return inside ? -sum / inside : -middle;
    }
};

}  // namespace

// Fit a machine for each of `grid` rising bounds to `n` rows of `kernel`, of which the first `positive` have class 1.
// Writes (grid, n) coefficients y alpha, (grid) offsets rho and (grid) steps. Returns 1 without memory, 2 if a number of
// the kernel is not finite.
EXPORT int joao_svm_fit(const float* kernel, int64_t ld, const int64_t* rows, int64_t n, int64_t positive,
                        const double* bounds, int64_t grid, double tolerance, int64_t limit, double* coefficients,
                        double* offsets, int64_t* steps) try {
    Machine machine(kernel, ld, rows, n, positive);
    if (!machine.is_finite()) return 2;
    for (int64_t c = 0; c < grid; c++) {
        machine.warm_start(bounds[c]);
        double middle;
        const int64_t before = machine.steps;
        for (;;) {
            const double gap = machine.gap(middle);
            const int64_t steps_before = machine.steps;
            if (!(gap >= tolerance) || machine.steps - before >= limit) break;
            machine.choose(gap, middle);
            machine.solve(float(tolerance * 0.9), std::min(before + limit, machine.steps + 4 * n));
            if (machine.steps == steps_before) break;  // float32 sees no gap
        }
        std::copy(machine.b.begin(), machine.b.end(), coefficients + c * n);
        offsets[c] = machine.offset(middle);
        steps[c] = machine.steps - before;
    }
    return 0;
} catch (const std::bad_alloc&) {
    return 1;
}
