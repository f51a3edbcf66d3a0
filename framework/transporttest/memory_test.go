package transporttest_test

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// sealed is fresh memory behind a descriptor.
func sealed(bytes uint64) (framework.Share, error) {
	m, err := memfd.New("test", bytes, memfd.Options{})
	if err != nil {
		return framework.Share{}, err
	}
	defer m.Close()
	return framework.Share{Kind: framework.ShareMemFD, FD: m.File()}.Dup()
}
