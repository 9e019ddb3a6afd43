// One binary with the components of a control plane as its subcommands: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager. The components are those that a cluster runs; their flags follow the subcommand. A component
// ends when its standard input is closed, so that none outlives the program that started it.
package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	components := map[string]func() *cobra.Command{
		"etcd":                    etcd,
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	}
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: control-plane etcd|kube-apiserver|kube-scheduler|kube-controller-manager [flags]")
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	command := components[os.Args[1]]()
	os.Args = os.Args[1:]
	os.Exit(cli.Run(command))
}

// etcd serves one member on a Unix socket in its directory, without fsync: the data is thrown away with the cluster.
func etcd() *cobra.Command {
	var directory string
	command := &cobra.Command{Use: "etcd", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		configuration := embed.NewConfig()
		configuration.Dir = filepath.Join(directory, "data")
		configuration.UnsafeNoFsync = true
		configuration.LogLevel = "warn"
		configuration.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(directory, "client.sock")}}
		// A single member has no peers: any free port will do, and the advertised addresses are never used.
		configuration.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
		server, err := embed.StartEtcd(configuration)
		if err != nil {
			return err
		}
		<-server.Server.ReadyNotify()
		return <-server.Err()
	}}
	command.Flags().StringVar(&directory, "directory", "", "where the data and the sockets are")
	return command
}
