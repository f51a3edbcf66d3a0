package setup

import (
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

func TestPlaceFromTheEnvironment(t *testing.T) {
	l, id, err := bootstrap.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody joins
	openMPI := map[string]string{
		"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4",
		"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prte-1",
	}
	for name, c := range map[string]struct {
		env        map[string]string
		rank, size int
		class      error
	}{
		"nothing":                {nil, 0, 1, nil},
		"mscclpp-run":            {map[string]string{"RANK": "1", "WORLD_SIZE": "3", "MSCCLPP_UNIQUE_ID": id.String()}, 1, 3, nil},
		"torchrun":               {map[string]string{"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}, 1, 3, nil},
		"Open MPI on one host":   {openMPI, 2, 4, nil},
		"Open MPI with one rank": {map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, 0, 1, nil},
		"an agent":               {map[string]string{"JOB_COMPLETION_INDEX": "1"}, 0, 0, framework.ErrInvalid},
		"half of a place":        {map[string]string{"RANK": "1"}, 0, 0, framework.ErrInvalid},
		"an id alone":            {map[string]string{"MSCCLPP_UNIQUE_ID": id.String()}, 0, 0, framework.ErrInvalid},
		"a rank too many":        {map[string]string{"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "4"}, 0, 0, framework.ErrInvalid},
	} {
		b, err := place(t.Context(), func(name string) string { return c.env[name] })
		if !errors.Is(err, c.class) {
			t.Errorf("%s: %v, expected %v", name, err, c.class)
			continue
		}
		if b.Rank != c.rank || b.Size != c.size {
			t.Errorf("%s: rank %d of %d, expected %d of %d", name, b.Rank, b.Size, c.rank, c.size)
		}
		if b.Listener != nil {
			b.Listener.Close()
		}
		if c.size > 1 && b.Addr == "" && b.ID == (bootstrap.UniqueID{}) {
			t.Errorf("%s: nothing says where to meet", name)
		}
	}
}

// torchrun's store has MASTER_PORT, so the ranks meet at another one, which is the same
// for all of a run and another one after a restart. Ranks that mscclpp-run started keep
// theirs.
func TestPlaceBesideTorchrun(t *testing.T) {
	at := func(rank, restart string, more ...string) string {
		env := map[string]string{"RANK": rank, "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": restart}
		for _, name := range more {
			env[name] = "y"
		}
		b, err := place(t.Context(), func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		return b.Addr
	}
	first := at("0", "0")
	if first == "10.0.0.1:29400" || at("2", "0") != first || at("0", "1") == first {
		t.Errorf("%s, %s, after a restart %s", first, at("2", "0"), at("0", "1"))
	}
	if got := at("0", "0", "MSCCLPP_LAUNCH_ID"); got != "10.0.0.1:29400" {
		t.Errorf("%s under mscclpp-run", got)
	}
}
