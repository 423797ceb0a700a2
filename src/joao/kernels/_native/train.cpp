// A pre-training step on a CPU: views, encoder and head forward and backward, NT-Xent, and the losses of all pairs.
//
// The torch forms that define it: joao.augmentations (laws of the views), joao.encoders.Gin (the network), joao.heads,
// joao.objectives.NtXent and joao.training.steps.pair_losses. tests/kernels/test_native.py compares them.
//
// Rows of activations are padded to a multiple of PAD floats with zeros. Everything of one view depends on the seed and
// the number of the draw alone, and is summed in an order that depends on neither threads nor timing.

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// ---- vectors and matrix products -------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int V = 16, ROWS = 8;
#elif defined(__AVX2__)
constexpr int V = 8, ROWS = 6;
#else
constexpr int V = 4, ROWS = 4;
#endif
constexpr long PAD = 16;
typedef float vec __attribute__((vector_size(V * sizeof(float)), aligned(4), may_alias));

inline vec load(const float* p) { return *reinterpret_cast<const vec*>(p); }
inline void store(float* p, vec value) { *reinterpret_cast<vec*>(p) = value; }
inline vec positive(vec value) { return value < 0.0f ? vec{} : value; }  // NaN stays NaN
inline long padded(long n) { return (n + PAD - 1) / PAD * PAD; }

// Memory that grows and is never initialised.
template <class T>
class Buffer {
    std::unique_ptr<T[]> data;
    size_t capacity = 0;

public:
    T* reserve(size_t count) {
        if (count > capacity) {
            data.reset();
            capacity = 0;
            data.reset(new T[count + count / 4]);
            capacity = count + count / 4;
        }
        return data.get();
    }
    T* zeros(size_t count) { return count ? static_cast<T*>(memset(reserve(count), 0, count * sizeof(T))) : reserve(1); }
    T* get() const { return data.get(); }
};

enum Start { ZERO, ADD, BIAS };

// C = start + A B for one tile of R rows and N vectors; element (m, k) of A is a[m * am + k * ak].
template <int R, int N>
inline void tile(long K, const float* a, long am, long ak, const float* b, long ldb, float* c, long ldc, Start start,
                 const float* bias, bool relu) {
    vec sum[R][N];
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++)
            sum[r][n] = start == ADD ? load(c + r * ldc + n * V) : start == BIAS ? load(bias + n * V) : vec{};
    for (long k = 0; k < K; k++) {
        vec right[N];
        for (int n = 0; n < N; n++) right[n] = load(b + k * ldb + n * V);
        for (int r = 0; r < R; r++) {
            const float left = a[r * am + k * ak];
            for (int n = 0; n < N; n++) sum[r][n] += left * right[n];
        }
    }
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) store(c + r * ldc + n * V, relu ? positive(sum[r][n]) : sum[r][n]);
}

template <int R, int N>
long row_tiles(long m, long M, long K, const float* a, long am, long ak, const float* b, long ldb, float* c, long ldc,
               Start start, const float* bias, bool relu) {
    for (; m + R <= M; m += R) tile<R, N>(K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, start, bias, relu);
    return m;
}

template <int N>
void column_tiles(long M, long K, const float* a, long am, long ak, const float* b, long ldb, float* c, long ldc,
                  Start start, const float* bias, bool relu) {
    long m = row_tiles<ROWS, N>(0, M, K, a, am, ak, b, ldb, c, ldc, start, bias, relu);
    if constexpr (ROWS > 4) m = row_tiles<4, N>(m, M, K, a, am, ak, b, ldb, c, ldc, start, bias, relu);
    if constexpr (ROWS > 2) m = row_tiles<2, N>(m, M, K, a, am, ak, b, ldb, c, ldc, start, bias, relu);
    row_tiles<1, N>(m, M, K, a, am, ak, b, ldb, c, ldc, start, bias, relu);
}

// C (M x N) = start + A (M x K) B (K x N), where N is a multiple of PAD.
void multiply(long M, long N, long K, const float* a, long am, long ak, const float* b, long ldb, float* c, long ldc,
              Start start = ZERO, const float* bias = nullptr, bool relu = false) {
    long n = 0;
    for (; n + 2 * V <= N; n += 2 * V)
        column_tiles<2>(M, K, a, am, ak, b + n, ldb, c + n, ldc, start, bias ? bias + n : bias, relu);
    for (; n < N; n += V)
        column_tiles<1>(M, K, a, am, ak, b + n, ldb, c + n, ldc, start, bias ? bias + n : bias, relu);
}

inline void add_columns(long rows, long width, const float* x, double* total) {
    for (long c = 0; c < width; c += V) {
        vec sum{};
        for (long row = 0; row < rows; row++) sum += load(x + row * width + c);
        for (int i = 0; i < V; i++) total[c + i] += sum[i];
    }
}

// ---- randomness ------------------------------------------------------------------------------------------------------

inline uint64_t splitmix(uint64_t& state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// xoshiro256++ of Blackman and Vigna.
struct Random {
    uint64_t s[4];
    explicit Random(uint64_t seed, uint64_t draw) {
        seed ^= (draw + 1) * 0xd1342543de82ef95;
        for (auto& each : s) each = splitmix(seed);
    }
    static uint64_t rotate(uint64_t x, int k) { return x << k | x >> (64 - k); }
    uint64_t next() {
        const uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t, s[3] = rotate(s[3], 45);
        return result;
    }
    long below(long n) { return static_cast<long>((static_cast<unsigned __int128>(next()) * n) >> 64); }
};

// Mark `count` of `total` items, each subset with equal probability (Floyd's algorithm).
void choose(Random& random, long total, long count, uint8_t* marked) {
    memset(marked, 0, total);
    for (long last = total - count; last < total; last++) {
        const long drawn = random.below(last + 1);
        marked[marked[drawn] ? last : drawn] = 1;
    }
}

inline uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x21f0aaad;
    x = (x ^ x >> 15) * 0x735a2d97;
    return x ^ x >> 15;
}

inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// log x for normal x > 0, by log m = 2 artanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)].
inline float fast_log(float x) {
    const uint32_t bits = to_bits(x) - 0x3f3504f3;
    const float exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23);
    const float m = from_bits((bits & 0x007fffff) + 0x3f3504f3);
    const float q = (m - 1) / (m + 1), p = q * q;
    return exponent * 0.69314718f + 2 * q * (1 + p * (1 / 3.f + p * (1 / 5.f + p * (1 / 7.f + p * (1 / 9.f)))));
}

// e^x for x <= 0; NaN stays NaN.
inline float fast_exp(float x) {
    x = x < -87 ? -87 : x;
    const float shifted = x * 1.44269504f + 12582912.f, k = shifted - 12582912.f;  // rounds to an integer
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    const float p =
        1 + r * (1 + r * (1 / 2.f + r * (1 / 6.f + r * (1 / 24.f + r * (1 / 120.f + r * (1 / 720.f))))));
    return p * from_bits((to_bits(shifted) + 127) << 23);
}

// Independent draws from N(0.5, 0.5^2), by Box and Muller.
void fill_noise(Random& random, long count, float* out) {
    const uint64_t key = random.next();
    const uint32_t first = static_cast<uint32_t>(key), second = static_cast<uint32_t>(key >> 32);
    float buffer[128];
    for (long start = 0; start < count; start += 128) {
        const uint32_t base = static_cast<uint32_t>(start / 2);
        for (int i = 0; i < 64; i++) {
            const uint32_t a = mix((base + i) * 0x9e3779b9u + first), b = mix((base + i) * 0x85ebca6bu + second);
            const float u = static_cast<float>(static_cast<int32_t>(a >> 8) + 1) * 0x1p-24f;
            const float t = (static_cast<float>(static_cast<int32_t>(b >> 8)) * 0x1p-24f - 0.5f) * 3.14159265f;
            const float q = t * t, radius = 0.5f * std::sqrt(-2 * fast_log(u));
            const float sine = t * (1 + q * (-1 / 6.f + q * (1 / 120.f + q * (-1 / 5040.f + q * (1 / 362880.f +
                               q * (-1 / 39916800.f))))));
            const float cosine = 1 + q * (-1 / 2.f + q * (1 / 24.f + q * (-1 / 720.f + q * (1 / 40320.f +
                                 q * (-1 / 3628800.f + q * (1 / 479001600.f))))));
            buffer[i] = 0.5f + radius * 2 * sine * cosine;
            buffer[i + 64] = 0.5f + radius * (1 - 2 * sine * sine);
        }
        memcpy(out + start, buffer, sizeof(float) * std::min(128L, count - start));
    }
}

// ---- graphs and views ------------------------------------------------------------------------------------------------

}  // namespace

// Mirrored by ctypes structures in joao.kernels.native.
struct Graphs {
    const int64_t* first_node;   // (G + 1)
    const int64_t* first_edge;   // (N + 1), of nodes
    const int32_t* source;       // (E), inside the graph, ascending for each target
    const int64_t* first_value;  // (N + 1) sparse rows of x, or null
    const int32_t* column;
    const float* value;
    const float* dense;  // (N, d) x, or null
    int64_t features;
    // (N), or null: the first node of the graph, counted inside it, that has, with itself, the same neighbours.
    const int32_t* twin;
};

struct Augmentation {
    int32_t kind;    // of Kind
    int32_t option;  // edge_perturb: drop_only; attribute_mask: fill with the mean
    double strength;
    double keep;  // subgraph: share of nodes to keep, or negative
};

struct Network {
    int64_t layers, width;
    float** encoder;  // of each layer: weight, bias, weight, bias, gamma, beta, running mean, running variance
    float** heads;    // of each head: weight, bias, weight, bias; null without heads
    double eps, momentum, temperature;
    int32_t positive_in_denominator, symmetric;
};

namespace {

enum Kind { IDENTITY, NODE_DROP, SUBGRAPH, ATTRIBUTE_MASK, EDGE_PERTURB };

long floor_share(long count, double share) {
    const long whole = static_cast<long>(std::floor(count * share + 1e-9));
    return share >= 1 ? whole : std::min(whole, std::max(count - 1, 0L));
}

struct View {
    long nodes = 0, edges = 0, fills = 0;
    Buffer<int64_t> row;      // of each node in the store
    Buffer<int32_t> fill_of;  // of each node: number of its replaced row, or -1
    Buffer<float> fill;       // replaced rows of x
    Buffer<int32_t> first_node, source;
    Buffer<int32_t> twin;  // of each node: an earlier one with the same sum over neighbours, or itself
    Buffer<int64_t> first_edge;
    std::vector<int32_t> blocks;  // graphs from one block to the next are processed together
    // Scratch of one graph.
    Buffer<uint8_t> marked;
    Buffer<int32_t> number, frontier, low_of_node, pair, twin_number;
    Buffer<int64_t> table, degree;
    Buffer<uint64_t> bits;
};

struct Drawing {
    const Graphs& all;
    View& view;
    Random& random;

    long first, size;  // the graph: its first node in the store and its number of nodes

    int64_t edges_from(long node) const { return all.first_edge[first + node]; }

    void begin(long graph) {
        first = all.first_node[graph];
        size = all.first_node[graph + 1] - first;
    }

    void whole() {
        int32_t* source = view.source.get();
        const int32_t base = static_cast<int32_t>(view.nodes);
        for (long v = 0; v < size; v++) {
            const long at = view.nodes + v;
            view.row.get()[at] = first + v;
            view.fill_of.get()[at] = -1;
            if (all.twin) view.twin.get()[at] = base + all.twin[first + v];
            view.first_edge.get()[at] = view.edges + edges_from(v) - edges_from(0);
        }
        const int32_t* from = all.source + edges_from(0);
        const long edges = edges_from(size) - edges_from(0);
        for (long e = 0; e < edges; e++) source[view.edges + e] = base + from[e];
        view.nodes += size;
        view.edges += edges;
    }

    // The subgraph of the marked nodes (or of all others).
    void induced(const uint8_t* marked, uint8_t kept) {
        int32_t* number = view.number.reserve(size);
        int32_t next = static_cast<int32_t>(view.nodes);
        for (long v = 0; v < size; v++) number[v] = marked[v] == kept ? next++ : -1;
        if (all.twin) {  // twins stay twins, and their first one may be gone
            int32_t* of_class = view.twin_number.reserve(size);
            std::fill(of_class, of_class + size, -1);
            for (long v = 0; v < size; v++) {
                if (number[v] < 0) continue;
                int32_t& twin = of_class[all.twin[first + v]];
                view.twin.get()[number[v]] = twin = twin < 0 ? number[v] : twin;
            }
        }
        int32_t* source = view.source.get();
        long edges = view.edges;
        for (long v = 0; v < size; v++) {
            if (number[v] < 0) continue;
            view.row.get()[number[v]] = first + v;
            view.fill_of.get()[number[v]] = -1;
            view.first_edge.get()[number[v]] = edges;
            for (int64_t e = edges_from(v); e < edges_from(v + 1); e++) {
                const int32_t other = number[all.source[e]];
                source[edges] = other;
                edges += other >= 0;
            }
        }
        view.nodes = next;
        view.edges = edges;
    }

    void node_drop(const Augmentation& how) {
        uint8_t* marked = view.marked.reserve(size);
        choose(random, size, floor_share(size, how.strength), marked);
        induced(marked, 0);
    }

    // Growth by uniformly drawn neighbours of the nodes taken so far.
    void subgraph(const Augmentation& how) {
        if (how.strength == 0) return whole();
        const long wanted = how.keep < 0 ? size - floor_share(size, how.strength)
                                         : std::max(floor_share(size, how.keep), 1L);
        uint8_t* seen = view.marked.zeros(2 * size);
        uint8_t* taken = seen + size;
        int32_t* frontier = view.frontier.reserve(size);
        long waiting = 0;
        for (long count = 0; count < wanted; count++) {
            int32_t node;
            if (waiting) {
                const long place = random.below(waiting);
                node = frontier[place];
                frontier[place] = frontier[--waiting];
            } else {
                do node = static_cast<int32_t>(random.below(size));
                while (taken[node]);
                seen[node] = 1;
            }
            taken[node] = 1;
            for (int64_t e = edges_from(node); e < edges_from(node + 1); e++) {
                const int32_t other = all.source[e];
                frontier[waiting] = other;  // there is room: unseen nodes are not in it
                waiting += !seen[other];
                seen[other] = 1;
            }
        }
        induced(taken, 1);
    }

    void attribute_mask(const Augmentation& how) {
        const long count = floor_share(size, how.strength), d = all.features, start = view.nodes;
        whole();
        if (count == 0) return;
        uint8_t* marked = view.marked.reserve(size);
        choose(random, size, count, marked);
        const float* mean = nullptr;
        for (long v = 0; v < size; v++) {
            if (!marked[v]) continue;
            view.fill_of.get()[start + v] = static_cast<int32_t>(view.fills);
            float* row = view.fill.get() + view.fills++ * d;
            if (!how.option) {
                fill_noise(random, d, row);
            } else if (mean) {
                memcpy(row, mean, d * sizeof(float));
            } else {
                mean_row(row);
                mean = row;
            }
        }
    }

    void mean_row(float* row) const {
        memset(row, 0, all.features * sizeof(float));
        for (long v = first; v < first + size; v++) {
            if (all.dense)
                for (long c = 0; c < all.features; c++) row[c] += all.dense[v * all.features + c];
            else
                for (int64_t i = all.first_value[v]; i < all.first_value[v + 1]; i++) row[all.column[i]] += all.value[i];
        }
        for (long c = 0; c < all.features; c++) row[c] /= size;
    }

    // Undirected edges are numbered by their entry in the list of the higher node, where lower nodes come first.
    void edge_perturb(const Augmentation& how) {
        int32_t* low = view.low_of_node.reserve(size + 1);
        long num_low = 0;
        for (long v = 0; v < size; v++) {
            low[v] = static_cast<int32_t>(num_low);
            const int32_t *begin = all.source + edges_from(v), *end = all.source + edges_from(v + 1);
            num_low += std::lower_bound(begin, end, static_cast<int32_t>(v)) - begin;
        }
        low[size] = static_cast<int32_t>(num_low);
        const long count = floor_share(num_low, how.strength);
        if (count == 0) return whole();
        uint8_t* dropped = view.marked.reserve(num_low);
        choose(random, num_low, count, dropped);
        if (all.twin)
            for (long v = 0; v < size; v++) view.twin.get()[view.nodes + v] = static_cast<int32_t>(view.nodes + v);
        if (size * size <= 32 * num_low) return perturb_bits(how, count, low, dropped);
        const long added = how.option ? 0 : new_pairs(count, low, dropped);
        const int32_t* pair = view.pair.get();
        int64_t* degree = view.degree.zeros(size + 1);
        const auto each_edge = [&](auto&& visit) {  // of what is left and new, both directions, and of loops one
            for (long v = 0; v < size; v++) {
                const int64_t begin = edges_from(v);
                const long lower = low[v + 1] - low[v];
                for (long i = 0; i < lower; i++)
                    if (!dropped[low[v] + i]) visit(v, all.source[begin + i]), visit(all.source[begin + i], v);
                if (begin + lower < edges_from(v + 1) && all.source[begin + lower] == v) visit(v, v);
            }
            for (long i = 0; i < added; i++) visit(pair[2 * i], pair[2 * i + 1]), visit(pair[2 * i + 1], pair[2 * i]);
        };
        each_edge([&](long target, long) { degree[target]++; });
        const int32_t base = static_cast<int32_t>(view.nodes);
        for (long v = 0; v < size; v++) {
            view.row.get()[base + v] = first + v;
            view.fill_of.get()[base + v] = -1;
            view.first_edge.get()[base + v] = view.edges;
            view.edges += degree[v];
            degree[v] = view.edges - degree[v];  // where its next edge goes
        }
        int32_t* source = view.source.get();
        each_edge([&](long target, long from) { source[degree[target]++] = base + static_cast<int32_t>(from); });
        view.nodes += size;
    }

    // The same for dense graphs, with a bit for each pair of nodes. Draws and order of the edges are the same.
    void perturb_bits(const Augmentation& how, long count, const int32_t* low, const uint8_t* dropped) {
        const long words = (size + 63) / 64;
        uint64_t* kept = view.bits.zeros(2 * size * words);
        uint64_t* known = kept + size * words;  // below the diagonal the edges of the graph, above it new ones
        const auto word = [&](uint64_t* bits, long row, long column) -> uint64_t& { return bits[row * words + column / 64]; };
        const auto bit = [](long column, uint64_t value = 1) { return value << (column % 64); };
        for (long v = 0; v < size; v++) {
            const int64_t begin = edges_from(v);
            const long lower = low[v + 1] - low[v];
            for (long i = 0; i < lower; i++) {
                const long u = all.source[begin + i];
                const uint64_t stays = !dropped[low[v] + i];
                word(known, v, u) |= bit(u);
                word(kept, v, u) |= bit(u, stays);
                word(kept, u, v) |= bit(v, stays);
            }
            if (begin + lower < edges_from(v + 1) && all.source[begin + lower] == v) word(kept, v, v) |= bit(v);
        }
        int32_t* pair = view.pair.reserve(2 * count);
        int64_t* degree = view.degree.zeros(size);  // by new edges
        long added = 0;
        for (long i = 0; i < (how.option ? 0 : count); i++) {
            const auto [u, v] = draw_pair();
            const uint64_t is_edge = word(known, v, u) >> (u % 64) & 1;  // without branches, which would be mispredicted
            const uint64_t is_new = ~(is_edge | word(known, u, v) >> (v % 64)) & 1;
            word(kept, v, u) |= bit(u, is_edge);
            word(kept, u, v) |= bit(v, is_edge);
            word(known, u, v) |= bit(v, is_new);
            pair[2 * added] = static_cast<int32_t>(u), pair[2 * added + 1] = static_cast<int32_t>(v);
            degree[u] += is_new, degree[v] += is_new, added += is_new;
        }
        const int32_t base = static_cast<int32_t>(view.nodes);
        int32_t* source = view.source.get();
        for (long v = 0; v < size; v++) {
            view.row.get()[base + v] = first + v;
            view.fill_of.get()[base + v] = -1;
            view.first_edge.get()[base + v] = view.edges;
            for (long w = 0; w < words; w++)
                for (uint64_t left = kept[v * words + w]; left; left &= left - 1)
                    source[view.edges++] = base + static_cast<int32_t>(64 * w + __builtin_ctzll(left));
            const long of_new = degree[v];
            degree[v] = view.edges;  // where its next new edge goes
            view.edges += of_new;
        }
        for (long i = 0; i < added; i++) {
            source[degree[pair[2 * i]]++] = base + pair[2 * i + 1];
            source[degree[pair[2 * i + 1]]++] = base + pair[2 * i];
        }
        view.nodes += size;
    }

    // Two different nodes, the smaller one first.
    std::pair<long, long> draw_pair() {
        const long u = random.below(size), other = random.below(size - 1), v = other + (other >= u);
        return {std::min(u, v), std::max(u, v)};
    }

    // Draw pairs of different nodes; returns how many were not connected, in `view.pair`. A dropped edge that is drawn
    // is back.
    long new_pairs(long count, const int32_t* low, uint8_t* dropped) {
        long slots = 4;
        while (slots < 2 * count) slots *= 2;
        int64_t* table = view.table.reserve(slots);
        std::fill(table, table + slots, -1);
        int32_t* pair = view.pair.reserve(2 * count);
        long added = 0;
        for (long i = 0; i < count; i++) {
            const auto [u, v] = draw_pair();
            const int32_t* begin = all.source + edges_from(v);
            const int32_t* end = begin + (low[v + 1] - low[v]);
            const int32_t* found = std::lower_bound(begin, end, static_cast<int32_t>(u));
            if (found != end && *found == u) {
                dropped[low[v] + (found - begin)] = 0;
                continue;
            }
            const int64_t key = v * size + u;
            long slot = static_cast<long>((static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15) >> 20) & (slots - 1);
            while (table[slot] >= 0 && table[slot] != key) slot = (slot + 1) & (slots - 1);
            if (table[slot] == key) continue;
            table[slot] = key;
            pair[2 * added] = static_cast<int32_t>(u), pair[2 * added + 1] = static_cast<int32_t>(v);
            added++;
        }
        return added;
    }
};

constexpr long BLOCK = 192;  // nodes of a block of small graphs

void draw(const Graphs& all, View& view, const int64_t* graphs, long B, const Augmentation& how, uint64_t seed,
          uint64_t number) {
    long nodes = 0, edges = 0, masked = 0;
    for (long b = 0; b < B; b++) {
        const int64_t first = all.first_node[graphs[b]], last = all.first_node[graphs[b] + 1];
        nodes += last - first;
        edges += all.first_edge[last] - all.first_edge[first];
        if (how.kind == ATTRIBUTE_MASK) masked += floor_share(last - first, how.strength);
    }
    view.nodes = view.edges = view.fills = 0;
    view.row.reserve(nodes), view.fill_of.reserve(nodes), view.first_edge.reserve(nodes + 1);
    if (all.twin) view.twin.reserve(nodes);
    view.source.reserve(edges + 1), view.first_node.reserve(B + 1), view.fill.reserve(masked * all.features + 1);
    view.blocks.assign(1, 0);
    Random random(seed, number);
    Drawing drawing{all, view, random, 0, 0};
    long block_start = 0;
    for (long b = 0; b < B; b++) {
        view.first_node.get()[b] = static_cast<int32_t>(view.nodes);
        drawing.begin(graphs[b]);
        switch (how.kind) {
            case NODE_DROP: drawing.node_drop(how); break;
            case SUBGRAPH: drawing.subgraph(how); break;
            case ATTRIBUTE_MASK: drawing.attribute_mask(how); break;
            case EDGE_PERTURB: drawing.edge_perturb(how); break;
            default: drawing.whole();
        }
        if (view.nodes - block_start >= BLOCK || b == B - 1) {
            view.blocks.push_back(static_cast<int32_t>(b + 1));
            block_start = view.nodes;
        }
    }
    view.first_node.get()[B] = static_cast<int32_t>(view.nodes);
    view.first_edge.get()[view.nodes] = view.edges;
}

// ---- weights ---------------------------------------------------------------------------------------------------------

// A linear layer, transposed for the forward pass, (in, out), and as torch has it for the backward pass, (out, in).
// Inputs are groups of `group` columns, each padded on its own (the layers of an embedding).
struct Linear {
    long in, out, group, in_padded, out_padded;
    Buffer<float> transposed, plain, bias;

    void pack(const float* weight, const float* given, long inputs, long outputs, long size_of_group) {
        in = inputs, out = outputs, group = size_of_group;
        in_padded = in / group * padded(group), out_padded = padded(out);
        float *t = transposed.zeros(in_padded * out_padded), *p = plain.zeros(out * in_padded);
        for (long o = 0; o < out; o++)
            for (long i = 0; i < in; i++) t[column(i) * out_padded + o] = p[o * in_padded + column(i)] = weight[o * in + i];
        memcpy(bias.zeros(out_padded), given, out * sizeof(float));
    }
    long column(long i) const { return i / group * padded(group) + i % group; }
};

struct Gradient {
    Buffer<float> weight;  // (in, out), padded as Linear::transposed
    std::vector<double> bias;

    void clear(const Linear& of) {
        weight.zeros(of.in_padded * of.out_padded);
        bias.assign(of.out_padded, 0);
    }
    void copy_to(const Linear& of, const Gradient* other, float* to_weight, float* to_bias) const {
        for (long o = 0; o < of.out; o++) {
            for (long i = 0; i < of.in; i++) {
                const long at = of.column(i) * of.out_padded + o;
                to_weight[o * of.in + i] = weight.get()[at] + (other ? other->weight.get()[at] : 0);
            }
            to_bias[o] = static_cast<float>(bias[o] + (other ? other->bias[o] : 0));
        }
    }
};

struct LayerWeights {
    Linear first, second;
    Buffer<float> gamma, beta;
};

struct Weights {
    long layers, width, wide;  // wide: padded width
    double eps;
    std::vector<LayerWeights> layer;

    void pack(const Network& network, long features) {
        layers = network.layers, width = network.width, wide = padded(width), eps = network.eps;
        layer.resize(layers);
        for (long l = 0; l < layers; l++) {
            float** from = network.encoder + 8 * l;
            const long in = l ? width : features;
            layer[l].first.pack(from[0], from[1], in, width, in);
            layer[l].second.pack(from[2], from[3], width, width, width);
            memcpy(layer[l].gamma.zeros(wide), from[4], width * sizeof(float));
            memcpy(layer[l].beta.zeros(wide), from[5], width * sizeof(float));
        }
    }
};

struct Head {
    Linear first, second;

    void pack(float** from, long layers, long width) {
        first.pack(from[0], from[1], layers * width, layers * width, width);
        second.pack(from[2], from[3], layers * width, layers * width, layers * width);
    }
};

// ---- the encoder -----------------------------------------------------------------------------------------------------

struct LayerState {
    Buffer<float> hidden, z;  // (N, wide): after the first and the second ReLU
    Buffer<float> mean, slope, inverse;  // y = (z - mean) slope + beta, with slope = gamma inverse
    std::vector<double> variance, sum, product;  // sums over nodes of dy and of dy times normalised z
    Gradient first, second;
};

// Encodes one view, forward and backward. Two of them may work at the same time.
class Encoder {
    Buffer<float> h, y, rows, gradient;
    const Graphs* all;
    const Weights* weights;
    long wide;

    long begin(long block) const { return view.first_node.get()[view.blocks[block]]; }
    long num_blocks() const { return static_cast<long>(view.blocks.size()) - 1; }

    // out_v = start + in_v + sum of in_u over neighbours u, of nodes a to b; both have the rows from a on.
    void add_neighbours(long a, long b, const float* in, float* out, const float* bias) const {
        const int32_t* source = view.source.get();
        const int64_t* first = view.first_edge.get();
        const float* base = in - a * wide;
        const int32_t* twin = all->twin ? view.twin.get() : nullptr;
        long c = 0;
        for (; c + 2 * V <= wide; c += 2 * V)
            for (long v = a; v < b; v++) {
                if (twin && twin[v] != v) continue;
                vec one = load(base + v * wide + c), two = load(base + v * wide + c + V);
                if (bias) one += load(bias + c), two += load(bias + c + V);
                for (int64_t e = first[v]; e < first[v + 1]; e++) {
                    const float* from = base + static_cast<long>(source[e]) * wide + c;
                    one += load(from), two += load(from + V);
                }
                store(out + (v - a) * wide + c, bias ? positive(one) : one);
                store(out + (v - a) * wide + c + V, bias ? positive(two) : two);
            }
        for (; c < wide; c += V)
            for (long v = a; v < b; v++) {
                if (twin && twin[v] != v) continue;
                vec one = load(base + v * wide + c);
                if (bias) one += load(bias + c);
                for (int64_t e = first[v]; e < first[v + 1]; e++) one += load(base + source[e] * wide + c);
                store(out + (v - a) * wide + c, bias ? positive(one) : one);
            }
        if (twin)
            for (long v = a; v < b; v++)
                if (twin[v] != v) memcpy(out + (v - a) * wide, out + (twin[v] - a) * wide, wide * sizeof(float));
    }

    // Dense rows of x of nodes a to b: all of them, or with sparse x the replaced ones only. Returns their number.
    long dense_rows(long a, long b, const float*& x) {
        const long d = all->features;
        const int32_t* fill_of = view.fill_of.get();
        if (!all->dense) {
            long from = -1, count = 0;
            for (long v = a; v < b; v++)
                if (fill_of[v] >= 0) from = from < 0 ? fill_of[v] : from, count++;
            x = view.fill.get() + std::max(from, 0L) * d;
            return count;
        }
        float* to = rows.reserve((b - a) * d);
        for (long v = a; v < b; v++)
            memcpy(to + (v - a) * d,
                   fill_of[v] < 0 ? all->dense + view.row.get()[v] * d : view.fill.get() + fill_of[v] * d,
                   d * sizeof(float));
        x = to;
        return b - a;
    }

    // h = x W of nodes a to b. Rows of x with few entries are sums of rows of W.
    void input_product(long a, long b, float* out) {
        const Linear& linear = weights->layer[0].first;
        const float *x, *w = linear.transposed.get();
        const long d = all->features, count = dense_rows(a, b, x);
        if (all->dense) return multiply(count, wide, d, x, d, 1, w, wide, out, wide);
        float* replaced = y.reserve((b - a) * wide);
        if (count) multiply(count, wide, d, x, d, 1, w, wide, replaced, wide);
        for (long v = a; v < b; v++, out += wide) {
            if (view.fill_of.get()[v] >= 0) {
                memcpy(out, replaced, wide * sizeof(float));
                replaced += wide;
                continue;
            }
            const int64_t row = view.row.get()[v];
            memset(out, 0, wide * sizeof(float));
            for (int64_t i = all->first_value[row]; i < all->first_value[row + 1]; i++)
                for (long c = 0; c < wide; c += V)
                    store(out + c, load(out + c) + all->value[i] * load(w + all->column[i] * wide + c));
        }
    }

    // dW += x' dh of nodes a to b.
    void input_gradient(long a, long b, const float* dh, float* dw) {
        const float* x;
        const long d = all->features, count = dense_rows(a, b, x);
        if (all->dense) return multiply(d, wide, count, x, 1, d, dh, wide, dw, wide, ADD);
        float* replaced = y.reserve((b - a) * wide);
        long number = 0;
        for (long v = a; v < b; v++, dh += wide) {
            if (view.fill_of.get()[v] >= 0) {
                memcpy(replaced + number++ * wide, dh, wide * sizeof(float));
                continue;
            }
            const int64_t row = view.row.get()[v];
            for (int64_t i = all->first_value[row]; i < all->first_value[row + 1]; i++) {
                float* to = dw + all->column[i] * wide;
                for (long c = 0; c < wide; c += V) store(to + c, load(to + c) + all->value[i] * load(dh + c));
            }
        }
        if (count) multiply(d, wide, count, x, 1, d, replaced, wide, dw, wide, ADD);
    }

    // y = the normalised output of a layer for nodes a to b.
    void normalise(long l, long a, long b, float* out) const {
        const LayerState& s = state[l];
        const float* beta = weights->layer[l].beta.get();
        for (long c = 0; c < wide; c += V) {
            const vec mean = load(s.mean.get() + c), slope = load(s.slope.get() + c), shift = load(beta + c);
            for (long v = a; v < b; v++)
                store(out + (v - a) * wide + c, (load(s.z.get() + v * wide + c) - mean) * slope + shift);
        }
    }

    void pool(long l, long block, const float* out) {
        const long start = begin(block), stride = weights->layers * wide;
        for (long g = view.blocks[block]; g < view.blocks[block + 1]; g++)
            for (long c = 0; c < wide; c += V) {
                vec sum{};
                for (long v = view.first_node.get()[g]; v < view.first_node.get()[g + 1]; v++)
                    sum += load(out + (v - start) * wide + c);
                store(embedding.get() + g * stride + l * wide + c, sum);
            }
    }

    void moments(long l, std::vector<double>& total) {
        LayerState& s = state[l];
        float* mean = s.mean.reserve(wide);
        for (long c = 0; c < wide; c++) mean[c] = static_cast<float>(total[c] / view.nodes);
        s.variance.assign(wide, 0);
        for (long start = 0; start < view.nodes; start += 128)
            for (long c = 0; c < wide; c += V) {
                vec sum{};
                const vec centre = load(mean + c);
                for (long v = start; v < std::min(start + 128, view.nodes); v++) {
                    const vec distance = load(s.z.get() + v * wide + c) - centre;
                    sum += distance * distance;
                }
                for (int i = 0; i < V; i++) s.variance[c + i] += sum[i];
            }
        for (long c = 0; c < wide; c++) {
            s.variance[c] /= view.nodes;
            s.inverse.reserve(wide)[c] = static_cast<float>(1 / std::sqrt(s.variance[c] + weights->eps));
            s.slope.reserve(wide)[c] = weights->layer[l].gamma.get()[c] * s.inverse.get()[c];
        }
    }

    // Add the gradient of pooling to dy of a block, and sum what the gradient of the normalisation needs.
    void sum_gradient(long l, long block, const float* pooled, float* dy, bool is_last) {
        LayerState& s = state[l];
        const long stride = weights->layers * wide;
        for (long g = view.blocks[block]; g < view.blocks[block + 1]; g++)
            for (long c = 0; c < wide; c += V) {
                const vec of_graph = load(pooled + g * stride + l * wide + c);
                const vec mean = load(s.mean.get() + c), inverse = load(s.inverse.get() + c);
                vec sum{}, product{};
                for (long v = view.first_node.get()[g]; v < view.first_node.get()[g + 1]; v++) {
                    float* at = dy + v * wide + c;
                    const vec value = is_last ? of_graph : load(at) + of_graph;
                    store(at, value);
                    sum += value;
                    product += value * ((load(s.z.get() + v * wide + c) - mean) * inverse);
                }
                for (int i = 0; i < V; i++) s.sum[c + i] += sum[i], s.product[c + i] += product[i];
            }
    }

    // dz of nodes a to b: the gradient of normalisation and ReLU.
    void before_norm(long l, long a, long b, const float* dy, float* dz) const {
        const LayerState& s = state[l];
        for (long c = 0; c < wide; c += V) {
            vec mean_sum, mean_product;
            for (int i = 0; i < V; i++) {
                mean_sum[i] = static_cast<float>(s.sum[c + i] / view.nodes);
                mean_product[i] = static_cast<float>(s.product[c + i] / view.nodes);
            }
            const vec mean = load(s.mean.get() + c), inverse = load(s.inverse.get() + c), slope = load(s.slope.get() + c);
            for (long v = a; v < b; v++) {
                const vec z = load(s.z.get() + v * wide + c);
                const vec value = slope * (load(dy + v * wide + c) - mean_sum - (z - mean) * inverse * mean_product);
                store(dz + (v - a) * wide + c, z > 0.0f ? value : vec{});
            }
        }
    }

public:
    View view;
    Buffer<float> embedding;  // (B, layers * wide)
    std::vector<LayerState> state;

    void forward(const Graphs& graphs, const Weights& given, long B) {
        all = &graphs, weights = &given, wide = given.wide;
        state.resize(given.layers);
        embedding.reserve(B * given.layers * wide);
        std::vector<double> total(wide);
        for (long l = 0; l < given.layers; l++) {
            LayerState& s = state[l];
            const LayerWeights& w = given.layer[l];
            float *hidden = s.hidden.reserve(view.nodes * wide), *z = s.z.reserve(view.nodes * wide);
            std::fill(total.begin(), total.end(), 0);
            for (long block = 0; block < num_blocks(); block++) {
                const long a = begin(block), b = begin(block + 1), n = b - a;
                float* product = h.reserve(n * wide);
                if (l == 0) {
                    input_product(a, b, product);
                } else {
                    float* input = y.reserve(n * wide);
                    normalise(l - 1, a, b, input);
                    pool(l - 1, block, input);
                    multiply(n, wide, given.width, input, wide, 1, w.first.transposed.get(), wide, product, wide);
                }
                add_neighbours(a, b, product, hidden + a * wide, w.first.bias.get());
                multiply(n, wide, given.width, hidden + a * wide, wide, 1, w.second.transposed.get(), wide, z + a * wide,
                         wide, BIAS, w.second.bias.get(), true);
                add_columns(n, wide, z + a * wide, total.data());
            }
            moments(l, total);
        }
        for (long block = 0; block < num_blocks(); block++) {
            const long a = begin(block), b = begin(block + 1);
            float* output = y.reserve((b - a) * wide);
            normalise(given.layers - 1, a, b, output);
            pool(given.layers - 1, block, output);
        }
    }

    // The gradients of the weights, from those of the embeddings, (B, layers * wide).
    void backward(const float* pooled) {
        float* dy = gradient.reserve(view.nodes * wide);
        const long last = weights->layers - 1;
        for (auto& each : state) each.sum.assign(wide, 0), each.product.assign(wide, 0);
        for (long block = 0; block < num_blocks(); block++) sum_gradient(last, block, pooled, dy, true);
        for (long l = last; l >= 0; l--) {
            LayerState& s = state[l];
            const LayerWeights& w = weights->layer[l];
            s.first.clear(w.first), s.second.clear(w.second);
            for (long block = 0; block < num_blocks(); block++) {
                const long a = begin(block), b = begin(block + 1), n = b - a;
                const float* hidden = s.hidden.get() + a * wide;
                float *dz = h.reserve(2 * n * wide), *dg = dz + n * wide;
                before_norm(l, a, b, dy, dz);
                multiply(weights->width, wide, n, hidden, 1, wide, dz, wide, s.second.weight.get(), wide, ADD);
                add_columns(n, wide, dz, s.second.bias.data());
                multiply(n, wide, weights->width, dz, wide, 1, w.second.plain.get(), wide, dg, wide);
                for (long i = 0; i < n * wide; i += V) store(dg + i, load(hidden + i) > 0.0f ? load(dg + i) : vec{});
                add_columns(n, wide, dg, s.first.bias.data());
                float* dh = dz;
                add_neighbours(a, b, dg, dh, nullptr);
                if (l == 0) {
                    input_gradient(a, b, dh, s.first.weight.get());
                    continue;
                }
                float* input = y.reserve(n * wide);
                normalise(l - 1, a, b, input);
                multiply(weights->width, wide, n, input, 1, wide, dh, wide, s.first.weight.get(), wide, ADD);
                multiply(n, wide, weights->width, dh, wide, 1, w.first.plain.get(), wide, dy + a * wide, wide);
                sum_gradient(l - 1, block, pooled, dy, false);
            }
        }
    }
};

// ---- heads and the loss ----------------------------------------------------------------------------------------------

struct Projection {
    const Head* head = nullptr;
    long B, dim;  // dim: length of the padded rows of z
    Buffer<float> hidden, own, unit, norm, dz, dhidden, dembedding;
    Gradient first, second;
    float* z;

    void forward(const Head* given, float* embedding, long graphs, long stride) {
        head = given, B = graphs;
        dim = head ? head->second.out_padded : stride;
        z = head ? own.reserve(B * dim) : embedding;
        if (head) {
            const Linear &one = head->first, &two = head->second;
            float* middle = hidden.reserve(B * one.out_padded);
            multiply(B, one.out_padded, one.in_padded, embedding, one.in_padded, 1, one.transposed.get(), one.out_padded,
                     middle, one.out_padded, BIAS, one.bias.get(), true);
            multiply(B, dim, two.in, middle, one.out_padded, 1, two.transposed.get(), dim, z, dim, BIAS, two.bias.get());
        }
        float *u = unit.reserve(B * dim), *length = norm.reserve(B);
        for (long b = 0; b < B; b++) {
            float square = 0;
            for (long c = 0; c < dim; c++) square += z[b * dim + c] * z[b * dim + c];
            length[b] = std::sqrt(square);
            // Zero vectors stay 0; vectors whose squares overflow become NaN.
            const float scale = length[b] == 0 ? 1 : std::isinf(length[b]) ? std::nanf("") : 1 / length[b];
            for (long c = 0; c < dim; c++) u[b * dim + c] = z[b * dim + c] * scale;
        }
    }

    // From the gradient of the unit vectors to that of the embeddings.
    float* backward(const float* du, const float* embedding) {
        float* to = dz.reserve(B * dim);
        const float* u = unit.get();
        for (long b = 0; b < B; b++) {
            float inner = 0;
            for (long c = 0; c < dim; c++) inner += u[b * dim + c] * du[b * dim + c];
            const float scale = norm.get()[b] == 0 ? 1 : 1 / norm.get()[b];
            for (long c = 0; c < dim; c++) to[b * dim + c] = (du[b * dim + c] - inner * u[b * dim + c]) * scale;
        }
        if (!head) return to;
        const Linear &one = head->first, &two = head->second;
        const long wide = one.out_padded;
        first.clear(one), second.clear(two);
        multiply(two.in, dim, B, hidden.get(), 1, wide, to, dim, second.weight.get(), dim, ADD);
        add_columns(B, dim, to, second.bias.data());
        float* middle = dhidden.reserve(B * wide);
        multiply(B, wide, two.out, to, dim, 1, two.plain.get(), two.in_padded, middle, wide);
        for (long i = 0; i < B * wide; i += V) store(middle + i, load(hidden.get() + i) > 0.0f ? load(middle + i) : vec{});
        multiply(one.in_padded, wide, B, embedding, 1, one.in_padded, middle, wide, first.weight.get(), wide, ADD);
        add_columns(B, wide, middle, first.bias.data());
        float* result = dembedding.reserve(B * one.in_padded);
        multiply(B, one.in_padded, one.out, middle, wide, 1, one.plain.get(), one.in_padded, result, one.in_padded);
        return result;
    }
};

class NtXent {
    Buffer<float> transposed, similarity, other, du, dv;
    double temperature;
    bool keep_positive, symmetric;

    // The loss of the rows of s (B x B, B' apart); with `gradient`, s becomes the gradient of their sum.
    double one_way(float* s, long B, long stride, bool gradient) const {
        double total = 0;
        for (long n = 0; n < B; n++, s += stride) {
            const float own = s[n];
            if (!keep_positive) s[n] = -std::numeric_limits<float>::infinity();
            float highest = -std::numeric_limits<float>::infinity();
            for (long m = 0; m < B; m++) highest = s[m] > highest ? s[m] : highest;
            if (!std::isfinite(highest)) highest = std::nanf("");
            for (long m = 0; m < B; m++) s[m] = fast_exp(s[m] - highest);
            if (!keep_positive) s[n] = 0;  // fast_exp(-inf) is a small number
            float sum = 0;
            for (long m = 0; m < B; m++) sum += s[m];
            total += std::log(static_cast<double>(sum)) + highest - own;
            if (gradient) {
                const float inverse = 1 / sum;
                for (long m = 0; m < B; m++) s[m] *= inverse;
                s[n] -= 1;
            }
        }
        return total / B;
    }

    static void transpose(const float* from, long rows, long columns, long stride, float* to, long to_stride) {
        for (long r = 0; r < rows; r++)
            for (long c = 0; c < columns; c++) to[c * to_stride + r] = from[r * stride + c];
    }

public:
    explicit NtXent(const Network& how)
        : temperature(how.temperature), keep_positive(how.positive_in_denominator), symmetric(how.symmetric) {}

    double loss(const Projection& first, const Projection& second, bool gradient = false) {
        const long B = first.B, dim = first.dim, stride = padded(B);
        float* t = transposed.zeros(dim * stride);
        transpose(second.unit.get(), B, dim, dim, t, stride);
        float* s = similarity.reserve(B * stride);
        multiply(B, stride, dim, first.unit.get(), dim, 1, t, stride, s, stride);
        const float scale = static_cast<float>(1 / temperature);
        for (long i = 0; i < B * stride; i++) s[i] *= scale;
        float* back = nullptr;
        if (symmetric) {
            back = other.reserve(B * stride);
            transpose(s, B, B, stride, back, stride);
        }
        double loss = one_way(s, B, stride, gradient);
        if (symmetric) loss = (loss + one_way(back, B, stride, gradient)) / 2;
        if (!gradient) return loss;
        const float share = static_cast<float>(1 / (temperature * B * (symmetric ? 2 : 1)));
        for (long n = 0; n < B; n++)
            for (long m = 0; m < B; m++)
                s[n * stride + m] = (s[n * stride + m] + (symmetric ? back[m * stride + n] : 0)) * share;
        multiply(B, dim, B, s, stride, 1, second.unit.get(), dim, du.reserve(B * dim), dim);
        multiply(B, dim, B, s, 1, stride, first.unit.get(), dim, dv.reserve(B * dim), dim);
        return loss;
    }
    const float* gradient(int side) const { return side ? dv.get() : du.get(); }
};

// ---- two threads -----------------------------------------------------------------------------------------------------

// Runs a job for side 0 here and for side 1 in a second thread, or both here. Waiting threads sleep.
class Pair {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable changed;
    const std::function<void(int)>* job = nullptr;
    bool stop = false, failed = false;

    void work() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return job || stop; });
            if (stop) return;
            lock.unlock();
            bool caught = false;
            try {
                (*job)(1);
            } catch (const std::bad_alloc&) {
                caught = true;
            }
            lock.lock();
            job = nullptr;
            failed = caught;
            changed.notify_all();
        }
    }

public:
    ~Pair() {
        if (!thread.joinable()) return;
        {
            std::lock_guard<std::mutex> lock(mutex);
            stop = true;
        }
        changed.notify_all();
        thread.join();
    }

    void run(int threads, const std::function<void(int)>& given) {
        if (threads < 2) {
            given(0), given(1);
            return;
        }
        if (!thread.joinable()) thread = std::thread([this] { work(); });
        {
            std::lock_guard<std::mutex> lock(mutex);
            job = &given;
            failed = false;
        }
        changed.notify_all();
        bool caught = false;
        try {
            given(0);
        } catch (const std::bad_alloc&) {
            caught = true;
        }
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return !job; });
        if (caught || failed) throw std::bad_alloc();
    }
};

struct Core {
    Pair pair;
    Weights weights;
    Encoder encoder[2];
    Head heads[2];
    std::vector<Head> all_heads;
    std::vector<std::unique_ptr<Projection>> projections;
    Projection projection[2];
};

void update_running(const Network& network, const Encoder& encoder) {
    const double count = static_cast<double>(encoder.view.nodes), momentum = network.momentum;
    for (long l = 0; l < network.layers; l++) {
        float *mean = network.encoder[8 * l + 6], *variance = network.encoder[8 * l + 7];
        const LayerState& s = encoder.state[l];
        for (long c = 0; c < network.width; c++) {
            mean[c] += static_cast<float>(momentum * (s.mean.get()[c] - mean[c]));
            variance[c] += static_cast<float>(momentum * (s.variance[c] * count / (count - 1) - variance[c]));
        }
    }
}

template <class F>
int guarded(F&& run) {
    try {
        run();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::system_error&) {  // no second thread
        return 2;
    }
}

}  // namespace

EXPORT void* joao_open() { return new (std::nothrow) Core; }
EXPORT void joao_close(void* core) { delete static_cast<Core*>(core); }

// Draw a view into `side`, to look at.
EXPORT int joao_draw(void* handle, int side, const Graphs* all, const int64_t* graphs, int64_t B, const Augmentation* how,
                     uint64_t seed, uint64_t number) {
    return guarded([&] { draw(*all, static_cast<Core*>(handle)->encoder[side].view, graphs, B, *how, seed, number); });
}

EXPORT void joao_view_size(void* handle, int side, int64_t* nodes, int64_t* edges) {
    const View& view = static_cast<Core*>(handle)->encoder[side].view;
    *nodes = view.nodes, *edges = view.edges;
}

// Copy the view of a side as a batch, with edges sorted by target and source; `row` is -1 - k for replaced row k.
EXPORT void joao_view_copy(void* handle, int side, int64_t B, int64_t features, int64_t* row, int64_t* source,
                           int64_t* target, int64_t* graph_of_node, float* replaced) {
    const View& view = static_cast<Core*>(handle)->encoder[side].view;
    for (long b = 0; b < B; b++)
        for (long v = view.first_node.get()[b]; v < view.first_node.get()[b + 1]; v++) {
            graph_of_node[v] = b;
            const int32_t fill = view.fill_of.get()[v];
            row[v] = fill < 0 ? view.row.get()[v] : -1 - fill;
            for (int64_t e = view.first_edge.get()[v]; e < view.first_edge.get()[v + 1]; e++) {
                source[e] = view.source.get()[e];
                target[e] = v;
            }
            std::sort(source + view.first_edge.get()[v], source + view.first_edge.get()[v + 1]);
        }
    memcpy(replaced, view.fill.get(), view.fills * features * sizeof(float));
}

// One step: two views, the loss, and the gradients of all weights; updates the running statistics.
// `gradients`: of each layer weight, bias, weight, bias, gamma, beta. `heads` of the network and `head_gradients`: those
// of the first view, then those of the second, which may be the same.
EXPORT int joao_train(void* handle, const Graphs* all, const int64_t* graphs, int64_t B, const Augmentation* two,
                      uint64_t seed, const Network* network, float** gradients, float** head_gradients, int threads,
                      double* loss) {
    return guarded([&] {
        Core& core = *static_cast<Core*>(handle);
        const long L = network->layers, stride = L * padded(network->width);
        core.weights.pack(*network, all->features);
        core.pair.run(threads, [&](int side) {
            Encoder& encoder = core.encoder[side];
            draw(*all, encoder.view, graphs, B, two[side], seed, side);
            encoder.forward(*all, core.weights, B);
            if (network->heads) core.heads[side].pack(network->heads + 4 * side, L, network->width);
            core.projection[side].forward(network->heads ? &core.heads[side] : nullptr, encoder.embedding.get(), B, stride);
        });
        NtXent objective(*network);
        *loss = objective.loss(core.projection[0], core.projection[1], true);
        core.pair.run(threads, [&](int side) {
            Encoder& encoder = core.encoder[side];
            encoder.backward(core.projection[side].backward(objective.gradient(side), encoder.embedding.get()));
        });
        for (long l = 0; l < L; l++) {
            float** to = gradients + 6 * l;
            const LayerState &one = core.encoder[0].state[l], &other = core.encoder[1].state[l];
            one.first.copy_to(core.weights.layer[l].first, &other.first, to[0], to[1]);
            one.second.copy_to(core.weights.layer[l].second, &other.second, to[2], to[3]);
            for (long c = 0; c < network->width; c++) {
                to[4][c] = static_cast<float>(one.product[c] + other.product[c]);
                to[5][c] = static_cast<float>(one.sum[c] + other.sum[c]);
            }
        }
        if (network->heads) {
            const bool shared = head_gradients[0] == head_gradients[4];
            for (int side = 0; side < (shared ? 1 : 2); side++) {
                float** to = head_gradients + 4 * side;
                const Projection &one = core.projection[side], *other = shared ? &core.projection[1] : nullptr;
                one.first.copy_to(core.heads[side].first, other ? &other->first : nullptr, to[0], to[1]);
                one.second.copy_to(core.heads[side].second, other ? &other->second : nullptr, to[2], to[3]);
            }
        }
        update_running(*network, core.encoder[0]);
        update_running(*network, core.encoder[1]);
    });
}

// The losses of all K x K pairs. `heads` of the network: one for each augmentation.
EXPORT int joao_measure(void* handle, const Graphs* all, const int64_t* graphs, int64_t B, const Augmentation* pool,
                        int64_t K, uint64_t seed, const Network* network, int threads, double* table) {
    return guarded([&] {
        Core& core = *static_cast<Core*>(handle);
        const long L = network->layers, stride = L * padded(network->width);
        core.weights.pack(*network, all->features);
        if (network->heads) {
            core.all_heads.resize(K);
            for (long k = 0; k < K; k++) core.all_heads[k].pack(network->heads + 4 * k, L, network->width);
        }
        while (static_cast<long>(core.projections.size()) < 2 * K) core.projections.emplace_back(new Projection);
        core.pair.run(threads, [&](int side) {
            Encoder& encoder = core.encoder[side];
            for (long number = side; number < 2 * K; number += 2) {
                const long k = number % K;
                if (number >= K && pool[k].kind == IDENTITY) continue;  // unchanged graphs are encoded once
                draw(*all, encoder.view, graphs, B, pool[k], seed, number);
                encoder.forward(*all, core.weights, B);
                core.projections[number]->forward(network->heads ? &core.all_heads[k] : nullptr,
                                                  encoder.embedding.get(), B, stride);
            }
        });
        core.pair.run(threads, [&](int side) {
            NtXent objective(*network);
            for (long i = side; i < K; i += 2)
                for (long j = 0; j < K; j++) {
                    const long again = pool[j].kind == IDENTITY ? j : K + j;
                    table[i * K + j] = objective.loss(*core.projections[i], *core.projections[again]);
                }
        });
    });
}
