package nccl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The lines of NCCL_DEBUG have the shape that scripts look for.
func TestDebugLines(t *testing.T) {
	t.Parallel()
	// said runs two ranks, and returns what the first one prints.
	said := func(variables ...string) [2]string {
		lines, _ := profiled(t, onGPUs(t, "TEST_GPUS=1"), variables...)
		return [2]string{lines[0], lines[1]}
	}
	const version = `NCCL version 2\.28\.9\+cuda13\.0 \(mscclpp-go devel\)`
	const process = `[^ :\n]+:\d+:\d+ `

	if got := said(); got != [2]string{} {
		t.Errorf("without NCCL_DEBUG: %q", got)
	}
	got := said("NCCL_DEBUG=version")
	if !regexp.MustCompile(`^`+version+`\n$`).MatchString(got[0]) || got[1] != "" {
		t.Errorf("VERSION: %q", got)
	}
	got = said("NCCL_DEBUG=WARN")
	if !regexp.MustCompile(`^` + version + `\n\n\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ` + process + `ops\.c:\d+ NCCL WARN ncclBroadcast : invalid root 9 .*\n$`).MatchString(got[0]) {
		t.Errorf("WARN: %q", got[0])
	}

	got = said("NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0,1")
	for rank, text := range got {
		for _, want := range []string{
			`\[RANK\] NCCL INFO ` + version,
			`\[RANK\] NCCL INFO ncclCommInitRankConfig comm 0x[0-9a-f]+ rank RANK nranks 2 cudaDev RANK nvmlDev RANK busId [0-9a-f]+ commId 0x[0-9a-f]+ - Init START`,
			`\[RANK\] NCCL INFO ncclCommInitRankConfig comm 0x[0-9a-f]+ rank RANK nranks 2 cudaDev RANK nvmlDev RANK busId [0-9a-f]+ commId 0x[0-9a-f]+ - Init COMPLETE`,
			`\[RANK\] NCCL INFO ncclCommSplit comm 0x[0-9a-f]+ rank RANK nranks 2 cudaDev RANK nvmlDev RANK busId [0-9a-f]+ parent 0x[0-9a-f]+ splitCount 1 color 0 key RANK - Init COMPLETE`,
			`\[RANK\] NCCL INFO comm 0x[0-9a-f]+ rank RANK nranks 2 cudaDev RANK - Destroy COMPLETE`,
		} {
			want = strings.ReplaceAll(want, "RANK", string(rune('0'+rank)))
			if !regexp.MustCompile(`(?m)^` + process + want + `$`).MatchString(text) {
				t.Errorf("rank %d: expected %s in\n%s", rank, want, text)
			}
		}
		expectText(t, text, "!opCount") // of the subsystem COLL
	}

	dir := t.TempDir()
	got = said("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=COLL", "NCCL_DEBUG_FILE="+dir+"/of-%p-%%")
	files, _ := filepath.Glob(dir + "/of-[0-9]*-%")
	if len(files) != 2 || got[0] != "" {
		t.Fatalf("files %v, and printed %q", files, got[0])
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^` + process + `\[\d\] NCCL INFO AllReduce: opCount 1 sendbuff 0x[0-9a-f]+ recvbuff 0x[0-9a-f]+ count 0 datatype 7 op 0 root 0 comm 0x[0-9a-f]+ \[nranks=2\] stream 0x[0-9a-f]+$`).MatchString(string(text)) {
		t.Errorf("COLL:\n%s", text)
	}
	expectText(t, string(text), "!Init COMPLETE")
}

// The version is another one if the user wants that, and the usual one where what is wanted is none.
func TestVersionOverride(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"22705": "NCCL version 2.27.5+", "2.30.7": "NCCL version 2.30.7+", "2804": "NCCL version 2.8.4+", "": "NCCL version 2.28.9+",
		"2.27": `MSCCLPP_NCCL_VERSION is "2.27": expected a version`, "9": "NCCL version 2.28.9+",
	} {
		expectText(t, alone(t, "join.c", "NCCL_DEBUG=WARN", "MSCCLPP_NCCL_VERSION="+set), want)
	}
}
