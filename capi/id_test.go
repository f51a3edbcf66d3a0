package capi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// ranksOf has processes join as ranks 0 to n-1 by an id, or those that are given, and returns their lines.
func ranksOf(t *testing.T, client, id string, n int, more string, ranks ...int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if ranks == nil {
		for r := range n {
			ranks = append(ranks, r)
		}
	}
	said := make([]string, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			c := exec.CommandContext(ctx, client, "joins_by_id")
			c.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "ID=" + id, fmt.Sprint("RANK=", r), fmt.Sprint("RANKS=", n), more}
			out, err := c.CombinedOutput()
			said[i] = string(out)
			if err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		})
	}
	all.Wait()
	return said
}

func expectSaid(t *testing.T, what string, said []string, result, part string) {
	t.Helper()
	for i, s := range said {
		if !strings.HasPrefix(s, result+":") || !strings.Contains(s, part) {
			t.Errorf("%s: process %d says %q, expected %s with %q", what, i, s, result, part)
		}
	}
}

// An id is made by a process that is no rank. It serves one job, its maker has to live until all have joined, and a rank 0 that
// does not come is named.
func TestIDs(t *testing.T) {
	t.Parallel()
	client := client(t)
	maker := exec.CommandContext(t.Context(), client, "makes_ids")
	maker.Env, maker.Stderr = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, os.Stderr
	in, err := maker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceValue(func() error { return errors.Join(in.Close(), maker.Wait()) })
	defer func() { _ = end() }()
	var ids []string
	for lines := bufio.NewScanner(out); len(ids) < 4 && lines.Scan(); {
		ids = append(ids, lines.Text())
	}
	if len(ids) < 4 {
		t.Fatal(end())
	}
	for _, id := range ids[:2] {
		expectSaid(t, "first use", ranksOf(t, client, id, 3, ""), "MSCCLPP_SUCCESS", "")
		expectSaid(t, "second use", ranksOf(t, client, id, 2, ""), "MSCCLPP_INVALID", "an id serves one job")
	}
	// By then it waits for rank 0, on a busy machine, too.
	expectSaid(t, "rank 0 does not come", ranksOf(t, client, ids[2], 2, "LIMIT=10000", 1), "MSCCLPP_TIMEOUT", "rank 0 has not come")
	expectSaid(t, "after that", ranksOf(t, client, ids[2], 2, ""), "MSCCLPP_SUCCESS", "")
	if err := end(); err != nil {
		t.Error(err)
	}
	expectSaid(t, "the maker has ended", ranksOf(t, client, ids[3], 2, ""), "MSCCLPP_PEER", "the process that made the unique id does not answer")
}
