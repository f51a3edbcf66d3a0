package nvls_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
)

const (
	roleKey  = "NVLS_TEST_ROLE"
	ranksKey = "NVLS_TEST_RANKS"
)

// The emulated driver reads faults once, and lives as long as its process: each job with one is a process of its own.
func TestMain(m *testing.M) {
	switch os.Getenv(roleKey) {
	case "plugin":
		plugins.Serve(nvls.New)
	case "job":
		os.Exit(runJob())
	case "rank":
		os.Exit(runRank())
	}
	os.Exit(m.Run())
}

// outcome is what became of one rank of a job.
type outcome struct {
	Rank    int    `json:"rank"`
	Refused string `json:"refused"` // why there is no switch, on a communicator that goes on
	Failed  string `json:"failed"`  // anything else
	Summed  bool   `json:"summed"`  // the switch was used, and the sums are right
}

// runJob is a job of which all ranks are in this process, each on a GPU of its own.
func runJob() int {
	n, err := strconv.Atoi(os.Getenv(ranksKey))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			defer boot.Close()
			o := perform(boot, r)
			mu.Lock()
			defer mu.Unlock()
			_ = json.NewEncoder(os.Stdout).Encode(o)
		})
	}
	ranks.Wait()
	return 0
}

func perform(boot framework.Bootstrap, rank int) outcome {
	o := outcome{Rank: rank}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p := &player{}
	err := p.open(ctx, boot, rank)
	if err == nil {
		o.Summed, err = p.play(ctx)
		if err != nil && p.comm.Err() == nil {
			o.Refused = err.Error()
			err = p.comm.Barrier(ctx) // the job goes on
		}
	}
	if err = errors.Join(err, p.close()); err != nil {
		o.Failed = err.Error()
	}
	return o
}

// job runs a job of n ranks on the emulated driver with the committed PTX and returns what became of each rank.
func job(t *testing.T, n int, env ...string) []outcome {
	t.Helper()
	text := child(t, "job", append([]string{ranksKey + "=" + strconv.Itoa(n)}, env...)...)
	all := make([]outcome, n)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Rank < 0 || o.Rank >= n {
			t.Fatalf("%q: %v", line, err)
		}
		all[o.Rank] = o
	}
	return all
}

func child(t *testing.T, role string, env ...string) string {
	t.Helper()
	cmd, done := command(t, role, env...)
	defer done()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	return string(out)
}

// command is this program in another role, on the emulated driver that interprets PTX.
func command(t *testing.T, role string, env ...string) (cmd *exec.Cmd, done func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), roleKey+"="+role, cuda.EnvLibrary+"="+emulated.Build(t), emulated.EnvRun+"=ptx",
		emulated.EnvGPUs+"=4", emulated.EnvMemory+"=268435456", "CUDA_VISIBLE_DEVICES=0,1,2,3", "NCCL_NVLS_ENABLE=1"), env...)
	return cmd, cancel
}

// facts are those that package setup gathers of a rank's device.
func facts(d *cuda.Device) framework.Facts {
	id := d.UUID()
	f := framework.Facts{Host: "emulated", NUMA: -1, Other: map[string]string{
		topo.FactPCI: d.PCI(), topo.FactUUID: fmt.Sprintf("GPU-%x", id), topo.FactDriver: strconv.Itoa(d.DriverVersion()), topo.FactMulticast: topo.MulticastYes,
	}}
	if err := d.Multicast(); err != nil {
		f.Other[topo.FactMulticast] = err.Error()
	}
	return f
}

func (p *player) open(ctx context.Context, boot framework.Bootstrap, rank int) (err error) {
	if p.dev, err = cuda.Open(rank); err != nil {
		return err
	}
	inner, err := nvls.New(nvls.Config{}.Defaults())
	if err != nil {
		return err
	}
	tr, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return err
	}
	p.comm, err = comm.New(ctx, boot, comm.Options{Device: p.dev, Transports: []*comm.Transport{tr}, Facts: facts(p.dev)})
	return err
}
