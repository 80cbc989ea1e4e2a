# places.rb PATH: as python/places.py.
def zero(n, depth)
  step(n, depth)
end

def one(n, depth)
  step(n, depth)
end

def step(n, depth)
  if depth == 0
    File.open(ARGV[0]).close
  elsif n & 1 == 1
    one(n >> 1, depth - 1)
  else
    zero(n >> 1, depth - 1)
  end
end

puts "ready #{$$}"
$stdout.flush
threads = (0...3).map do
  Thread.new do
    loop do
      64.times do |n|
        step(n, 4 + n % 16)
        sleep 0.011
      end
    end
  end
end
threads.each(&:join)
