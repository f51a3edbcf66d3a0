package verify

import (
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// sources are the rules of this check: another text may give another verdict.
//
//go:embed *.go
var sources embed.FS

// rules is a hash of them.
var rules = sync.OnceValue(func() []byte {
	h := sha256.New()
	names, _ := fs.Glob(sources, "*.go")
	for _, name := range names {
		text, _ := sources.ReadFile(name)
		h.Write([]byte(name))
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
		h.Write(text)
	}
	return h.Sum(nil)
})

// Known is Plan for a plan that may have been found right before: such verdicts are kept in the user's cache, under a hash of the plan
// and of the rules. Where there is no cache, it is Plan.
func Known(p *schema.Plan) Result {
	folder, err := ownfile.Cache("plans")
	if err != nil {
		return Plan(p)
	}
	return known(folder, p, Plan)
}

// known keeps verdicts in a folder.
func known(folder string, p *schema.Plan, check func(*schema.Plan) Result) Result {
	sum := sha256.Sum256(append(p.Encode(0), rules()...))
	file := filepath.Join(folder, hex.EncodeToString(sum[:])+".json")
	if got, ok := kept(file); ok && got.Ranks == len(p.GPUs) {
		return got
	}
	got := check(p)
	if text, err := json.Marshal(got); err == nil && got.Verdict == Right {
		// Without the file the plan is checked again: that is all.
		_ = atomicfile.File(file, func(w io.Writer) error { _, err := w.Write(text); return err })
	}
	return got
}

// kept reads a verdict. A file with something else does not count.
func kept(file string) (got Result, ok bool) {
	f, err := ownfile.Open(file, os.O_RDONLY, 0)
	if err != nil {
		return got, false
	}
	defer f.Close()
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(f, most))
	return got, err == nil && json.Unmarshal(text, &got) == nil && got.Verdict == Right
}
