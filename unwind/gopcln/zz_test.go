package gopcln
import ("testing";"os";"github.com/sliverprof/sliver/unwind/rule")
func BenchmarkBig(b *testing.B){
 for _,p:=range []string{"/tmp/gopcln/go125pie","/tmp/gopcln/go126pie"} { b.Run(p,func(b *testing.B){ r,err:=os.Open(p); if err!=nil {b.Skip()}
 for i:=0;i<b.N;i++ { t,err:=Load(r,rule.AMD64); if err!=nil {b.Fatal(err)}; if i==0 {b.Log(t.nfunc,t.text,t.gofunc)} } }) } }
