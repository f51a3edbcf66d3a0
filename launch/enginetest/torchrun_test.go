package enginetest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// torchrun's own store listens at MASTER_PORT. The ranks meet all the same, with the
// variables that torchrun sets, directly and through mscclpp-run.
func TestTorchrunsPortIsTaken(t *testing.T) {
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	port := store.Addr().(*net.TCPAddr).Port
	for name, before := range map[string][]string{"the program alone": nil, "through mscclpp-run": {runner}} {
		t.Run(name, func(t *testing.T) {
			var all []*started
			for r := range 2 {
				env := []string{
					modeVar + "=init", "TORCHELASTIC_RUN_ID=" + name, "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_USE_AGENT_STORE=True",
					"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port), "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
					fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r),
				}
				s := program(t, 2*patience, env, append(append([]string{}, before...), self(t))...)
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
				all = append(all, s)
			}
			for r, s := range all {
				if err := s.Wait(); err != nil || !strings.Contains(s.out.String(), fmt.Sprintf("rank %d of 2\n", r)) {
					t.Errorf("rank %d: %v, %s%s", r, err, s.out.String(), s.errs.String())
				}
			}
		})
	}
}
