package gputable

// goals are the targets on four H200s over NVLink, f16, sums, in graphs of many
// calls on registered buffers: µs, at most. They are a little below what prototypes
// reached.
var goals = map[string][]float64{
	"allreduce":     {2.1, 2.4, 2.7, 3.6, 6.0, 9.0, 22, 74, 295, 1090, 4180},
	"allgather":     {2.0, 2.2, 2.4, 3.0, 3.9, 5.4, 12, 38, 140, 530, 2075},
	"reducescatter": {2.1, 2.3, 2.6, 3.3, 4.8, 7.3, 14, 42, 155, 580, 2250},
	"alltoall":      {2.0, 2.2, 2.4, 3.0, 4.0, 5.6, 12, 38, 142, 535, 2085},
}

// column returns where a size stands in such a list: 1 K and powers of four.
func column(bytes int64) (int, bool) {
	for i, n := 0, int64(1<<10); n <= 1<<30; i, n = i+1, n*4 {
		if n == bytes {
			return i, true
		}
	}
	return 0, false
}

// Goal returns the goal of a point, if it has one.
func (out *Results) Goal(p Point) (float64, bool) {
	i, ok := column(p.Bytes)
	list := goals[p.Collective]
	if !ok || !out.H200 || p.Ranks != 4 || out.DType != "f16" || i >= len(list) {
		return 0, false
	}
	return list[i], true
}

// mscclpp and torch are libraries that cannot be measured in the same run. Their
// times are from 2026-11-20 on H200s of the same kind (driver 580.159, multicast
// off), measured in the same way; only where they were ahead of NCCL.
const (
	mscclpp = "MSCCL++ 0.9"
	torch   = "PyTorch 2.11, symmetric memory"
)

var before = map[Point]Rival{
	{4, "allreduce", 1 << 10}:   {2.77, mscclpp},
	{4, "allreduce", 4 << 10}:   {3.73, mscclpp},
	{4, "allreduce", 64 << 10}:  {5.29, mscclpp},
	{4, "allreduce", 256 << 10}: {7.14, mscclpp},
	{4, "allreduce", 1 << 20}:   {12.83, torch},
	{4, "allreduce", 4 << 20}:   {27.9, mscclpp},
	{4, "allreduce", 16 << 20}:  {83.9, mscclpp},
	{4, "allgather", 256 << 10}: {6.93, mscclpp},
	{4, "allgather", 4 << 20}:   {16.3, mscclpp},
	{2, "allreduce", 1 << 10}:   {2.45, mscclpp},
	{2, "allreduce", 4 << 10}:   {3.54, mscclpp},
	{2, "allreduce", 64 << 10}:  {4.44, mscclpp},
	{2, "allreduce", 256 << 10}: {5.94, mscclpp},
	{2, "allreduce", 1 << 20}:   {12.4, mscclpp},
	{2, "allreduce", 4 << 20}:   {20.2, mscclpp},
	{2, "allreduce", 16 << 20}:  {60.7, mscclpp},
	{2, "allreduce", 64 << 20}:  {225, mscclpp},
}

func (out *Results) earlier(p Point) (Rival, bool) {
	r, ok := before[p]
	return r, ok && out.H200 && out.DType == "f16"
}
