package verb

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProgressIsForTerminals(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b)
	p.start = time.Now().Add(-time.Hour)
	p.Show("half")
	p.Clear()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	q := NewProgress(file)
	q.start = p.start
	q.Show("half")
	info, err := file.Stat()
	if b.Len() != 0 || err != nil || info.Size() != 0 {
		t.Errorf("%q and %d bytes, %v: something extra in a pipe or a file", b.String(), info.Size(), err)
	}
}

func TestProgressWaitsAndCleansUp(t *testing.T) {
	var b bytes.Buffer
	p := &Progress{w: &b, start: time.Now().Add(time.Hour)}
	p.Show("early")
	if b.Len() != 0 {
		t.Errorf("%q after no time", b.String())
	}
	p.start = time.Now().Add(-time.Minute)
	p.Show("%d of %d", 1, 2)
	p.last = time.Now().Add(time.Hour)
	p.Show("%d of %d", 2, 2) // too soon after the first
	p.Clear()
	p.Clear()
	if got, want := b.String(), "\r\x1b[K1 of 2\r\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
