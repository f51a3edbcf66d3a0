package verbs

import "github.com/Mellanox/rdmamap"

// deviceOf returns the RDMA device of a network device, "" if it has none.
func deviceOf(netdev string) string {
	name, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return ""
	}
	return name
}
