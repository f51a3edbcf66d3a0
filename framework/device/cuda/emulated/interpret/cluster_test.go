package interpret_test

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// clustered runs a kernel of one rank on two clusters of two blocks of 32 threads.
func clustered(t *testing.T, s *interpret.Session, body string, grid uint32) error {
	t.Helper()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Image("image", text(body)); err != nil {
		return err
	}
	do(s.Reset())
	do(s.Memory(0, "memory", memory, bytes))
	do(s.Save())
	var p [8]byte
	for i := range p {
		p[i] = byte(uint64(memory) >> (8 * i))
	}
	do(s.Launch(&interpret.Launch{Image: "image", Entry: "k", Grid: grid, Block: 32, Cluster: 2, Arguments: p[:]}))
	_, err := s.Run(1, 12, true, 1e6)
	return err
}

// Each block has the lanes of the first warp of the other block store their numbers + 100 into its room, whose barrier counts them. A
// thread writes the word that its neighbor has sent to memory.
const (
	begins = "mov.u32 %r3, %cluster_ctarank;\nmov.u32 %r4, %cluster_nctarank;\nxor.b32 %r5, %r3, 1;\nmov.u64 %rd3, room;\nadd.s64 %rd4, %rd3, 128;\n" +
		"setp.ne.s32 %p1, %r1, 0;\n@%p1 bra READY;\nmbarrier.init.shared::cta.b64 [%rd4], 1;\nfence.mbarrier_init.release.cluster;\nREADY:\n"
	meets = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
	sends = "add.s64 %rd5, %rd3, %rd2;\n" +
		"mapa.shared::cluster.u64 %rd6, %rd5, %r5;\nmapa.shared::cluster.u64 %rd7, %rd4, %r5;\nadd.s32 %r6, %r1, 100;\n" +
		"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rd6], %r6, [%rd7];\n"
	arms  = "@%p1 bra ARMED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd4], 128;\nARMED:\n"
	waits = "WAIT:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%rd4], 0;\n@!%p2 bra WAIT;\n"
	reads = "ld.shared.u32 %r7, [%rd5];\nmul.wide.u32 %rd8, %r2, 128;\nadd.s64 %rd9, %rd8, %rd2;\nadd.s64 %rd9, %rd9, %rd1;\nst.global.u32 [%rd9], %r7;\n"
)

func TestBlocksOfAClusterStoreToEachOther(t *testing.T) {
	s := start(t)
	if err := clustered(t, s, begins+meets+sends+arms+waits+reads, 4); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(memory, 4*128)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 * 32 {
		if want := byte(i%32 + 100); got[4*i] != want {
			t.Errorf("block %d, thread %d: %d, expected %d", i/32, i%32, got[4*i], want)
		}
	}
	// The stores are seen when their barrier's phase has ended, which needs the arrival.
	if err := clustered(t, s, begins+meets+sends+reads+arms+waits, 4); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Read(memory, 4); err != nil || got[0] != 0 {
		t.Errorf("%v, %v: expected that nothing is seen before the wait", got, err)
	}
}

func TestMistakesWithClusters(t *testing.T) {
	s := start(t)
	for want, c := range map[string]struct {
		body string
		grid uint32
	}{
		"no multiple of the cluster":              {begins, 3},
		"the cluster has no such block":           {begins + meets + "mapa.shared::cluster.u64 %rd6, %rd4, 2;", 4},
		"no barrier is there":                     {begins + meets + strings.ReplaceAll(sends, "add.s64 %rd5, %rd3, %rd2;", "add.s64 %rd5, %rd3, %rd2;\nadd.s64 %rd4, %rd4, 8;"), 4},
		"outside of the cluster's shared memory":  {begins + meets + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd1], 128;", 4},
		"more arrivals than the barrier counts":   {begins + meets + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd4], 128;", 4},
		"shared memory of a block that has left":  {begins + meets + "setp.eq.s32 %p3, %r3, 0;\n@%p3 bra END;\n" + strings.Repeat("add.s32 %r9, %r3, 1;\n", 400) + sends + arms + waits + "END:", 4},
		"a barrier is there already":              {begins + meets + "@%p1 bra END;\nmbarrier.init.shared::cta.b64 [%rd4], 1;\nEND:", 4},
		"a plain access to a barrier":             {begins + meets + "st.shared.u32 [%rd4+4], %r1;", 4},
		"the barrier is not where the store goes": {begins + meets + strings.ReplaceAll(sends, "%rd7, %rd4, %r5", "%rd7, %rd4, %r3"), 4},
		"deadlock":      {begins + "barrier.cluster.wait.acquire.aligned;", 4},
		"unknown instr": {"st.async.shared::cluster.b32 [%rd1], %r1, [%rd1];", 4},
	} {
		if err := clustered(t, s, c.body, c.grid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
}
