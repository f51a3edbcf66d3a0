package image

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxImage bounds what a compressed image may expand to.
const maxImage = 64 << 20

// Endings of files that are compressed. Kernels of one image repeat each other at distances that gzip does not look back.
const (
	gzipped = ".gz"
	zstded  = ".zst"
)

// compressed reports whether a file with this ending is no image until it is expanded.
func compressed(ending string) bool { return ending == gzipped || ending == zstded }

// pack returns what a file of this name holds for an image.
func pack(name string, image []byte) ([]byte, error) {
	switch path.Ext(name) {
	case gzipped:
		return zip(image)
	case zstded:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(1<<23), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return w.EncodeAll(image, nil), w.Close()
	}
	return image, nil
}

// unpack returns the image that a file of this name holds.
func unpack(name string, data []byte) ([]byte, error) {
	switch path.Ext(name) {
	case gzipped:
		return unzip(data)
	case zstded:
		r, err := expander()
		if err != nil {
			return nil, err
		}
		image, err := r.DecodeAll(data, nil)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return nil, tooLong()
		}
		return image, err
	}
	return data, nil
}

// expander decodes whole images, for any number of callers, and has no goroutine.
var expander = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxImage), zstd.WithDecoderMaxWindow(maxImage))
})

func tooLong() error { return fmt.Errorf("expands to more than %d bytes", maxImage) }

func zip(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxImage+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxImage {
		return nil, tooLong()
	}
	return out, nil
}
