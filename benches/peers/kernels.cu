// What CUB and the CUDA runtime have for the operations of `benches/kernels/`, which loads this as libraries and times both sides by one
// loop. Each family is a library of its own, so that one which a version of CUB does not compile leaves the others:
//
//     nvcc -O3 -std=c++17 --extended-lambda -arch=native -shared -Xcompiler -fPIC -DFAMILY_REDUCE -o libreduce.so kernels.cu
//
// `peer_find` names a function by operation and type, or returns null. The function follows CUB's convention: without temporary memory
// it writes how many bytes it needs and does nothing else.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

struct Arrays {
    const void *x;
    const void *y;
    // As many elements as `x` has, where the result is an array of the type.
    void *out;
    // Sums in f32: of all, or of each row.
    void *sums;
    // An index, a count or bins; also a maximum.
    void *words;
    // Elements of `x`; rows and columns where there are rows.
    size_t n;
    size_t rows;
    size_t columns;
};

using Run = cudaError_t (*)(void *memory, size_t *bytes, const Arrays *arrays, cudaStream_t stream);

struct Entry {
    const char *operation;
    const char *type;
    Run run;
};

namespace {

template <class T> const T *x(const Arrays *a) { return static_cast<const T *>(a->x); }
template <class T> const T *y(const Arrays *a) { return static_cast<const T *>(a->y); }
template <class T> T *out(const Arrays *a) { return static_cast<T *>(a->out); }
[[maybe_unused]] float *sums(const Arrays *a) { return static_cast<float *>(a->sums); }
template <class T> T *words(const Arrays *a) { return static_cast<T *>(a->words); }

// Without temporary memory: says that one byte will do.
[[maybe_unused]] bool asked(void *memory, size_t *bytes) {
    if (memory == nullptr) {
        *bytes = 1;
    }
    return memory == nullptr;
}

} // namespace

#if defined(FAMILY_COPY)

namespace {

template <class T> cudaError_t copy(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cudaMemcpyAsync(a->out, a->x, a->n * sizeof(T), cudaMemcpyDeviceToDevice, stream);
}

template <class T> cudaError_t copy_unaligned(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cudaMemcpyAsync(a->out, x<T>(a) + 1, (a->n - 1) * sizeof(T), cudaMemcpyDeviceToDevice, stream);
}

template <class T> cudaError_t fill(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cudaMemsetAsync(a->out, 1, a->n * sizeof(T), stream);
}

const Entry ENTRIES[] = {
    {"copy", "f32", copy<float>},
    {"copy_unaligned", "f32", copy_unaligned<float>},
    {"copy_unaligned", "bf16", copy_unaligned<__nv_bfloat16>},
    {"fill", "f32", fill<float>},
};

} // namespace

#elif defined(FAMILY_ELEMENTWISE)

#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>

namespace {

__device__ float to_float(float value) { return value; }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T> struct From;
template <> struct From<float> {
    static __device__ float of(float value) { return value; }
};
template <> struct From<__nv_bfloat16> {
    static __device__ __nv_bfloat16 of(float value) { return __float2bfloat16(value); }
};

template <class T> struct Relu {
    __device__ T operator()(T x) const { return From<T>::of(fmaxf(to_float(x), 0.0f)); }
};
template <class T> struct Exp {
    __device__ T operator()(T x) const { return From<T>::of(expf(to_float(x))); }
};
template <class T> struct Gelu {
    __device__ T operator()(T x) const {
        float v = to_float(x);
        return From<T>::of(0.5f * v * (1.0f + erff(v * 0.70710678f)));
    }
};
template <class T> struct Axpy {
    __device__ T operator()(T x, T y) const { return From<T>::of(fmaf(1.5f, to_float(x), to_float(y))); }
};
template <class T> struct Add {
    __device__ T operator()(T x, T y) const { return From<T>::of(to_float(x) + to_float(y)); }
};

template <class T, class F> cudaError_t unary(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cub::DeviceTransform::Transform(cuda::std::make_tuple(x<T>(a)), out<T>(a), int64_t(a->n), F{}, stream);
}

template <class T, class F> cudaError_t binary(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    return cub::DeviceTransform::Transform(
        cuda::std::make_tuple(x<T>(a), y<T>(a)), out<T>(a), int64_t(a->n), F{}, stream);
}

// y = a x + y in place.
template <class T> cudaError_t axpy(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    if (asked(memory, bytes)) {
        return cudaSuccess;
    }
    T *updated = out<T>(a);
    return cub::DeviceTransform::Transform(
        cuda::std::make_tuple(x<T>(a), static_cast<const T *>(updated)), updated, int64_t(a->n), Axpy<T>{}, stream);
}

using bf16 = __nv_bfloat16;

const Entry ENTRIES[] = {
    {"relu", "f32", unary<float, Relu<float>>}, {"relu", "bf16", unary<bf16, Relu<bf16>>},
    {"gelu", "f32", unary<float, Gelu<float>>}, {"gelu", "bf16", unary<bf16, Gelu<bf16>>},
    {"exp", "f32", unary<float, Exp<float>>},   {"exp", "bf16", unary<bf16, Exp<bf16>>},
    {"add", "f32", binary<float, Add<float>>},  {"add", "bf16", binary<bf16, Add<bf16>>},
    {"axpy", "f32", axpy<float>},               {"axpy", "bf16", axpy<bf16>},
};

} // namespace

#elif defined(FAMILY_REDUCE)

#include <cub/device/device_reduce.cuh>

namespace {

// Accumulates in f32, as our sum does: CUB's own would be in bf16.
struct Plus {
    __host__ __device__ float operator()(float a, float b) const { return a + b; }
};

template <class T> cudaError_t sum(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceReduce::Reduce(memory, *bytes, x<T>(a), sums(a), int64_t(a->n), Plus{}, 0.0f, stream);
}

cudaError_t sum_f32(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceReduce::Sum(memory, *bytes, x<float>(a), sums(a), int64_t(a->n), stream);
}

template <class T> cudaError_t max(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceReduce::Max(memory, *bytes, x<T>(a), words<T>(a), int64_t(a->n), stream);
}

const Entry ENTRIES[] = {
    {"sum", "f32", sum_f32},
    {"sum", "bf16", sum<__nv_bfloat16>},
    {"max", "f32", max<float>},
    {"max", "bf16", max<__nv_bfloat16>},
};

} // namespace

#elif defined(FAMILY_ARGMAX)

#include <cub/device/device_reduce.cuh>

namespace {

// The value goes behind the index.
template <class T> cudaError_t argmax(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    T *value = reinterpret_cast<T *>(words<int64_t>(a) + 1);
    return cub::DeviceReduce::ArgMax(memory, *bytes, x<T>(a), value, words<int64_t>(a), int64_t(a->n), stream);
}

const Entry ENTRIES[] = {
    {"argmax", "f32", argmax<float>},
    {"argmax", "bf16", argmax<__nv_bfloat16>},
};

} // namespace

#elif defined(FAMILY_SEGMENTED)

#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

namespace {

struct Start {
    int64_t columns;
    __host__ __device__ int64_t operator()(int64_t row) const { return row * columns; }
};

cudaError_t row_sum(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    auto rows = thrust::make_counting_iterator(int64_t{0});
    auto starts = thrust::make_transform_iterator(rows, Start{int64_t(a->columns)});
    auto ends = thrust::make_transform_iterator(rows + 1, Start{int64_t(a->columns)});
    return cub::DeviceSegmentedReduce::Sum(memory, *bytes, x<float>(a), sums(a), int64_t(a->rows), starts, ends, stream);
}

const Entry ENTRIES[] = {{"row_sum", "f32", row_sum}};

} // namespace

#elif defined(FAMILY_SCAN)

#include <cub/device/device_scan.cuh>

namespace {

// Of bf16 the running sum is one of bf16 too, which ours is not.
template <class T> cudaError_t scan(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(memory, *bytes, x<T>(a), out<T>(a), int64_t(a->n), stream);
}

const Entry ENTRIES[] = {
    {"scan", "f32", scan<float>},
    {"scan", "bf16", scan<__nv_bfloat16>},
};

} // namespace

#elif defined(FAMILY_SORT)

#include <cub/device/device_radix_sort.cuh>

namespace {

cudaError_t sort(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(memory, *bytes, x<uint32_t>(a), out<uint32_t>(a), int64_t(a->n), 0, 32, stream);
}

const Entry ENTRIES[] = {{"sort", "u32", sort}};

} // namespace

#elif defined(FAMILY_SELECT)

#include <cub/device/device_select.cuh>

namespace {

struct IsPositive {
    __host__ __device__ bool operator()(float x) const { return x > 0.0f; }
};

cudaError_t select_if(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceSelect::If(
        memory, *bytes, x<float>(a), out<float>(a), words<int64_t>(a), int64_t(a->n), IsPositive{}, stream);
}

const Entry ENTRIES[] = {{"select_if", "f32", select_if}};

} // namespace

#elif defined(FAMILY_HISTOGRAM)

#include <cub/device/device_histogram.cuh>

namespace {

cudaError_t histogram(void *memory, size_t *bytes, const Arrays *a, cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramEven(
        memory, *bytes, x<float>(a), words<uint32_t>(a), 257, -1.0f, 1.0f, int64_t(a->n), stream);
}

const Entry ENTRIES[] = {{"histogram", "f32", histogram}};

} // namespace

#else
#error "define one of FAMILY_COPY, _ELEMENTWISE, _REDUCE, _ARGMAX, _SEGMENTED, _SCAN, _SORT, _SELECT, _HISTOGRAM"
#endif

extern "C" Run peer_find(const char *operation, const char *type) {
    for (const Entry &entry : ENTRIES) {
        if (strcmp(entry.operation, operation) == 0 && strcmp(entry.type, type) == 0) {
            return entry.run;
        }
    }
    return nullptr;
}
