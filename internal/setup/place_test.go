package setup

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

func TestPlaceFromTheEnvironment(t *testing.T) {
	l, id, err := bootstrap.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // no rank joins
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

// The engine that started the ranks comes first. The variables of an outer launcher would
// otherwise make a job of one rank of each of them, all of which succeed.
func TestPlaceWhereTwoLaunchersSpeak(t *testing.T) {
	openMPI := map[string]string{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
	slurm := map[string]string{"SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "4"}
	perHost := map[string]string{"SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "4", "SLURM_NODEID": "2", "SLURM_LOCALID": "0"}
	hydra := map[string]string{"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}
	one := map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
	id := map[string]string{"MSCCLPP_UNIQUE_ID": newID(t)}
	outer := map[string]string{"RANK": "0", "WORLD_SIZE": "1"}
	address := map[string]string{"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}
	for name, c := range map[string]struct {
		env  []map[string]string
		want string   // "rank of size"
		said []string // or an error that names both
	}{
		"Open MPI in a job of one":        {[]map[string]string{openMPI, outer, address}, "", []string{"RANK=0 WORLD_SIZE=1", "Open MPI", "rank 2 of 4"}},
		"Open MPI and no address":         {[]map[string]string{openMPI, outer}, "", []string{"RANK=0 WORLD_SIZE=1", "Open MPI", "rank 2 of 4"}},
		"Slurm in a job of one":           {[]map[string]string{slurm, outer, address}, "", []string{"RANK=0 WORLD_SIZE=1", "Slurm", "rank 2 of 4"}},
		"Slurm, a task for each host":     {[]map[string]string{perHost, outer, address}, "", []string{"RANK=0 WORLD_SIZE=1", "Slurm", "4 hosts"}},
		"MPICH in a job of one":           {[]map[string]string{hydra, outer, address}, "", []string{"RANK=0 WORLD_SIZE=1", "PMI", "rank 2 of 4"}},
		"a size of another job":           {[]map[string]string{openMPI, {"WORLD_SIZE": "8"}}, "", []string{"WORLD_SIZE=8", "Open MPI", "rank 2 of 4"}},
		"no number":                       {[]map[string]string{openMPI, {"RANK": "two"}}, "", []string{"RANK=two", "Open MPI"}},
		"a rank alone":                    {[]map[string]string{{"RANK": "1"}}, "", []string{"RANK=1 is set, and WORLD_SIZE is not"}},
		"a size alone":                    {[]map[string]string{{"WORLD_SIZE": "2"}}, "", []string{"WORLD_SIZE=2 is set, and RANK is not"}},
		"a rank alone on a host of Slurm": {[]map[string]string{{"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "RANK": "1"}}, "", []string{"RANK=1 is set, and WORLD_SIZE is not"}},
		"a rank alone in a job of one":    {[]map[string]string{one, {"RANK": "1"}}, "", []string{"RANK=1 is set, and WORLD_SIZE is not"}},
		"a size alone in a job of one":    {[]map[string]string{one, {"WORLD_SIZE": "2"}, address}, "", []string{"WORLD_SIZE=2 is set, and RANK is not"}},
		"half of the same":                {[]map[string]string{one, {"RANK": "0"}}, "0 of 1", nil},
		"an id alone":                     {[]map[string]string{id}, "", []string{"MSCCLPP_UNIQUE_ID is set, and RANK and WORLD_SIZE are not"}},
		"both say the same":               {[]map[string]string{openMPI, {"RANK": "2", "WORLD_SIZE": "4"}}, "2 of 4", nil},
		"one of them says the same":       {[]map[string]string{openMPI, {"RANK": "2"}}, "2 of 4", nil},
		"ranks by hand in a job of one":   {[]map[string]string{one, {"RANK": "1", "WORLD_SIZE": "2"}, address}, "1 of 2", nil},
		"ranks by hand on hosts of Slurm": {[]map[string]string{perHost, {"RANK": "9", "WORLD_SIZE": "16"}, address}, "9 of 16", nil},
		"an id beside Open MPI":           {[]map[string]string{openMPI, id}, "2 of 4", nil},
	} {
		env := map[string]string{}
		for _, part := range c.env {
			maps.Copy(env, part)
		}
		b, err := place(t.Context(), environment(env))
		if c.said == nil {
			if got := fmt.Sprintf("%d of %d", b.Rank, b.Size); err != nil || got != c.want {
				t.Errorf("%s: %s, %v: expected %s", name, got, err, c.want)
			}
			continue
		}
		if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: rank %d of %d, %v: expected ErrInvalid", name, b.Rank, b.Size, err)
			continue
		}
		for _, want := range c.said {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v: expected %q", name, err, want)
			}
		}
	}
}

// newID is the text of an id without a listener.
func newID(t *testing.T) string {
	t.Helper()
	id, err := bootstrap.NewUniqueID(netip.MustParseAddrPort("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
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
