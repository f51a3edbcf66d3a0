package nvls_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

const (
	rankKey = "NVLS_TEST_RANK"
	rootKey = "NVLS_TEST_ADDRESS"
)

// runRank is one rank of a job of processes.
func runRank() int {
	rank, err := strconv.Atoi(os.Getenv(rankKey))
	if err != nil {
		return 1
	}
	n, err := strconv.Atoi(os.Getenv(ranksKey))
	if err != nil {
		return 1
	}
	var listener net.Listener
	if rank == 0 { // inherited, so that nobody else takes the port
		if listener, err = net.FileListener(os.NewFile(3, "listener")); err != nil {
			return 1
		}
	}
	cfg := bootstrap.Config{Listener: listener, Rank: rank, Size: n, Addr: os.Getenv(rootKey), Secret: []byte("the secret of a test"), Job: "nvls"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	boot, err := bootstrap.Join(ctx, cfg)
	if err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(outcome{Rank: rank, Failed: "join: " + err.Error()})
		return 1
	}
	defer boot.Close()
	_ = json.NewEncoder(os.Stdout).Encode(perform(boot, rank))
	return 0
}

// processes runs a job whose ranks are processes, and returns what became of them; a rank that died says nothing.
func processes(t *testing.T, n int, env ...string) []*outcome {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := make([]*outcome, n)
	var ranks sync.WaitGroup
	for r := range n {
		ranks.Go(func() {
			cmd, done := command(t, "rank", append([]string{ranksKey + "=" + strconv.Itoa(n), rankKey + "=" + strconv.Itoa(r), rootKey + "=" + l.Addr().String()}, env...)...)
			defer done()
			if r == 0 {
				cmd.ExtraFiles = []*os.File{file}
			}
			out, err := cmd.Output()
			var o outcome
			if json.Unmarshal(out, &o) == nil {
				all[r] = &o
			} else if _, ended := err.(*exec.ExitError); !ended {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	return all
}

// A rank that dies between any two steps ends the job of the others, which blame it, and wait for nothing.
func TestDeathBetweenSteps(t *testing.T) {
	for _, step := range append([]string{"cuMulticastUnbind@0", "cuMulticastUnbind@1"}, steps...) {
		fault := step + ":die"
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			dead := 0
			if strings.Contains(fault, "@1") {
				dead = 1
			}
			all := processes(t, 2, emulated.EnvFaults+"="+fault)
			if all[dead] != nil {
				t.Fatalf("rank %d lives: %+v", dead, *all[dead])
			}
			o := all[1-dead]
			if o == nil {
				t.Fatal("the other rank says nothing")
			}
			if strings.HasPrefix(fault, "cuMulticastUnbind") { // both had summed by then, and one may have left
				if !o.Summed {
					t.Errorf("%+v: expected sums", *o)
				}
				return
			}
			if !strings.Contains(o.Failed, "rank "+strconv.Itoa(dead)) || o.Summed || o.Refused != "" {
				t.Errorf("%+v: expected a failure that names rank %d", *o, dead)
			}
		})
	}
}

// Ranks of several processes have one window.
func TestSwitchBetweenProcesses(t *testing.T) {
	for r, o := range processes(t, 2) {
		if o == nil || !o.Summed || o.Refused != "" || o.Failed != "" {
			t.Errorf("rank %d: %+v", r, o)
		}
	}
}
