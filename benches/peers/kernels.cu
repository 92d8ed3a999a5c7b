// What CUB and the CUDA runtime have for the operations of `benches/kernels.rs`, which loads this as a library and times both sides
// by one loop:
//
//     nvcc -O3 -std=c++17 -arch=native -shared -Xcompiler -fPIC -o libpeers.so kernels.cu
//
// `peer_find` names a function by operation and type, or returns null. The function follows CUB's convention: without temporary memory
// it writes how many bytes it needs and does nothing else.

#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <cuda/std/tuple>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

struct Arrays {
    const void *x;
    const void *y;
    void *out;
    void *second_out;
    // Elements of `x`; rows and columns where there are rows.
    size_t n;
    size_t rows;
    size_t columns;
};

using Run = cudaError_t (*)(void *memory, size_t *bytes, const Arrays *arrays, cudaStream_t stream);

namespace {

template <class T> const T *x(const Arrays *a) { return static_cast<const T *>(a->x); }
template <class T> const T *y(const Arrays *a) { return static_cast<const T *>(a->y); }
template <class T> T *out(const Arrays *a) { return static_cast<T *>(a->out); }

// Without temporary memory: says that one byte will do.
bool asked(void *memory, size_t *bytes) {
    if (memory == nullptr) {
        *bytes = 1;
    }
    return memory == nullptr;
}

template <class T> cudaError_t copy(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cudaMemcpyAsync(a->out, a->x, a->n * sizeof(T), cudaMemcpyDeviceToDevice, stream);
}

template <class T> cudaError_t fill(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cudaMemsetAsync(a->out, 1, a->n * sizeof(T), stream);
}

struct Relu {
    template <class T> __device__ T operator()(T x) const { return T(fmaxf(float(x), 0.0f)); }
};
struct Exp {
    template <class T> __device__ T operator()(T x) const { return T(expf(float(x))); }
};
struct Gelu {
    template <class T> __device__ T operator()(T x) const {
        float v = float(x);
        return T(0.5f * v * (1.0f + erff(v * 0.70710678f)));
    }
};
struct Axpy {
    template <class T> __device__ T operator()(T x, T y) const { return T(fmaf(1.5f, float(x), float(y))); }
};
struct Add {
    template <class T> __device__ T operator()(T x, T y) const { return x + y; }
};

template <class T, class F> cudaError_t unary(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cub::DeviceTransform::Transform(cuda::std::make_tuple(x<T>(a)), out<T>(a), a->n, F{}, stream);
}

template <class T, class F> cudaError_t binary(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cub::DeviceTransform::Transform(cuda::std::make_tuple(x<T>(a), y<T>(a)), out<T>(a), a->n, F{}, stream);
}

// y = a x + y in place.
template <class T> cudaError_t axpy(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    T *y = out<T>(a);
    return cub::DeviceTransform::Transform(
        cuda::std::make_tuple(x<T>(a), static_cast<const T *>(y)), y, a->n, Axpy{}, stream);
}

template <class T> cudaError_t sum(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceReduce::Sum(memory, *bytes, x<T>(a), out<T>(a), a->n, stream);
}

template <class T> cudaError_t max(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceReduce::Max(memory, *bytes, x<T>(a), out<T>(a), a->n, stream);
}

template <class T> cudaError_t argmax(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    auto *value = static_cast<T *>(a->second_out);
    return cub::DeviceReduce::ArgMax(memory, *bytes, x<T>(a), value, out<int64_t>(a), int64_t(a->n), stream);
}

struct Offsets {
    int64_t columns;
    __host__ __device__ int64_t operator()(int64_t row) const { return row * columns; }
};

template <class T> cudaError_t row_sum(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    auto first = cuda::make_transform_iterator(cuda::make_counting_iterator(int64_t{0}), Offsets{int64_t(a->columns)});
    return cub::DeviceSegmentedReduce::Sum(memory, *bytes, x<T>(a), out<T>(a), int64_t(a->rows), first, first + 1, stream);
}

template <class T> cudaError_t scan(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(memory, *bytes, x<T>(a), out<T>(a), a->n, stream);
}

template <class T> cudaError_t sort(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(memory, *bytes, x<T>(a), out<T>(a), a->n, 0, int(sizeof(T) * 8), stream);
}

template <class T> cudaError_t sort_pairs(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    auto *values = static_cast<uint32_t *>(a->second_out);
    return cub::DeviceRadixSort::SortPairs(
        memory, *bytes, x<T>(a), out<T>(a), y<uint32_t>(a), values, a->n, 0, int(sizeof(T) * 8), stream);
}

struct AboveHalf {
    template <class T> __device__ bool operator()(T x) const { return float(x) > 0.5f; }
};

template <class T> cudaError_t select(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    auto *count = static_cast<int64_t *>(a->second_out);
    return cub::DeviceSelect::If(memory, *bytes, x<T>(a), out<T>(a), count, int64_t(a->n), AboveHalf{}, stream);
}

template <class T> cudaError_t histogram(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramEven(
        memory, *bytes, x<T>(a), out<uint32_t>(a), 257, T(0.0f), T(1.0f), int64_t(a->n), stream);
}

cudaError_t histogram_u8(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramEven(
        memory, *bytes, x<uint8_t>(a), out<uint32_t>(a), 257, 0, 256, int64_t(a->n), stream);
}

struct Entry {
    const char *operation;
    const char *type;
    Run run;
};

const Entry ENTRIES[] = {
    {"copy", "f32", copy<float>},
    {"copy", "bf16", copy<__nv_bfloat16>},
    {"fill", "f32", fill<float>},
    {"relu", "f32", unary<float, Relu>},
    {"relu", "bf16", unary<__nv_bfloat16, Relu>},
    {"gelu", "f32", unary<float, Gelu>},
    {"gelu", "bf16", unary<__nv_bfloat16, Gelu>},
    {"exp", "f32", unary<float, Exp>},
    {"exp", "bf16", unary<__nv_bfloat16, Exp>},
    {"add", "f32", binary<float, Add>},
    {"add", "bf16", binary<__nv_bfloat16, Add>},
    {"axpy", "f32", axpy<float>},
    {"axpy", "bf16", axpy<__nv_bfloat16>},
    {"sum", "f32", sum<float>},
    {"sum", "bf16", sum<__nv_bfloat16>},
    {"max", "f32", max<float>},
    {"max", "bf16", max<__nv_bfloat16>},
    {"argmax", "f32", argmax<float>},
    {"argmax", "bf16", argmax<__nv_bfloat16>},
    {"row_sum", "f32", row_sum<float>},
    {"row_sum", "bf16", row_sum<__nv_bfloat16>},
    {"scan", "f32", scan<float>},
    {"scan", "bf16", scan<__nv_bfloat16>},
    {"scan", "i32", scan<int32_t>},
    {"sort", "u32", sort<uint32_t>},
    {"sort", "f32", sort<float>},
    {"sort", "u64", sort<uint64_t>},
    {"sort_pairs", "u32", sort_pairs<uint32_t>},
    {"select", "f32", select<float>},
    {"histogram", "f32", histogram<float>},
    {"histogram", "u8", histogram_u8},
};

} // namespace

extern "C" Run peer_find(const char *operation, const char *type) {
    for (const Entry &entry : ENTRIES) {
        if (strcmp(entry.operation, operation) == 0 && strcmp(entry.type, type) == 0) {
            return entry.run;
        }
    }
    return nullptr;
}
